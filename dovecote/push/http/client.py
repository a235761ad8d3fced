"""Send requests to one endpoint over kept connections: as many as there are requests in flight."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count

from dovecote.push.http.connection import Connection, Forbidden, SendFailed, Stale, Took
from dovecote.push.http.guard import AddressRefused, Guard, Unresolved
from dovecote.push.rules.sending.answer import Answer
from dovecote.push.rules.sending.headers import lines
from dovecote.push.rules.sending.request import WITHOUT_BODY, Form, Request

_LOOK_SECONDS = 15.0
_TURNS = 100
_TIMED_OUT = 408


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits on the duration of each step, and on the size of an answer."""

    connect: float = 10.0
    """Seconds to resolve, connect and agree on TLS."""
    whole: float = 30.0
    """Seconds from the request to the end of its answer."""
    most_bytes: int = 64_000
    idle: float = 60.0
    """Seconds after which a connection is closed that nobody used."""
    age: float = 300.0
    """
    Seconds after which a connection is replaced: the name may stand for other addresses by then.
    """


class Client:
    """
    A pool of connections to the origin of one form; used on its loop only.

    It follows no redirects and verifies TLS. A connection is bound to an address that the guard
    has checked. An error status in an answer closes no connection.

    After bytes that belong to no answer, each request has a connection of its own for a while:
    such bytes could be taken for the answer to the next request.
    """

    def __init__(
        self,
        form: Form,
        guard: Guard,
        patience: Patience,
        *,
        ca_file: str | None = None,
    ) -> None:
        self._origin, self._method = form.origin(), form.method
        self._guard, self._patience, self._ca_file = guard, patience, ca_file
        self._standing = lines(form.standing())
        self._with_body = form.method not in WITHOUT_BODY
        self._bodyless = form.method == "HEAD"
        self._idle: dict[Connection, None] = {}
        # One timer for all: a timer for each request would cost as much as writing its headers.
        self._asked_for: dict[Connection, float] = {}
        """When to give up each answer; the earliest comes first."""
        self._expires: asyncio.TimerHandle | None = None
        self._open: set[Connection] = set()
        self._turns = count()
        self._looks: asyncio.TimerHandle | None = None
        self._apart_until = 0.0
        self.made = 0
        """Number of connections made so far."""

    def send(
        self,
        request: Request,
        headers: Sequence[tuple[str, str]] = (),
        signed: str = "",
    ) -> Awaitable[Answer]:
        """
        Return the answer to a request, sent with its own headers and those of this attempt.

        `signed`: more of the latter, as they are sent.

        Raises:
            SendFailed: there is no answer, for whatever reason.
        """
        return self._sent(self.message(request, headers, signed), bodyless=self._bodyless)

    def message(
        self, request: Request, headers: Sequence[tuple[str, str]] = (), signed: str = ""
    ) -> bytes:
        """Return a request as it is sent; the arguments are those of `send`."""
        own = request.lines + signed + (lines(headers) if headers else "")
        if self._with_body:
            own += f"Content-Length: {len(request.body)}\r\n"
        head = f"{self._method} {request.target} HTTP/1.1\r\n{self._standing}{own}\r\n"
        return head.encode("latin-1") + request.body

    @property
    def is_ready(self) -> bool:
        """Whether there is a kept connection for a request."""
        return bool(self._idle)

    def begin(self, message: bytes, took: Took) -> bool:
        """
        Send a request over a kept connection, if there is one, and return whether there is.

        The client calls `took` with what comes of it, and never before this returns. A failure
        may show no more than the connection's age: `after` decides.
        """
        if not self._idle:
            return False
        connection, _ = self._idle.popitem()
        if connection.is_closing:
            return False
        self._expect(connection)
        connection.begin(message, took, bodyless=self._bodyless)
        return True

    async def after(self, found: Answer | SendFailed, message: bytes) -> Answer:
        """Return the answer to a request that was begun, and came to `found`; as `send`."""
        if isinstance(found, Stale):
            self._close_idle()
        elif isinstance(found, SendFailed):
            raise found
        elif not is_farewell(found):
            return found
        return await self._sent_anew(message, bodyless=self._bodyless)

    async def options(self, target: str, headers: Sequence[tuple[str, str]]) -> Answer:
        """Send an OPTIONS request; as `send`."""
        head = f"OPTIONS {target} HTTP/1.1\r\n{self._standing}{lines(headers)}\r\n"
        return await self._sent(head.encode("latin-1"), bodyless=False)

    async def close(self) -> None:
        """Close all connections."""
        for timer in (self._looks, self._expires):
            if timer is not None:
                timer.cancel()
        for each in list(self._open):
            each.close()
        for _ in range(_TURNS):  # transports close in the next iterations of the loop
            if self._open:
                await asyncio.sleep(0)

    async def _sent(self, data: bytes, *, bodyless: bool) -> Answer:
        """
        Send over a kept connection, and if the server has closed it, once more over a new one.

        That is safe: no answer to the request came, and push promises at least once. A new
        connection that is closed without an answer is a failure, so nothing is sent a third time.
        """
        if self._idle:
            connection, _ = self._idle.popitem()
            try:
                answer = await self._asked(connection, data, bodyless=bodyless)
            except Stale:
                self._close_idle()
            except asyncio.CancelledError:
                connection.close()
                raise
            else:
                if not is_farewell(answer):
                    return answer
        return await self._sent_anew(data, bodyless=bodyless)

    async def _sent_anew(self, data: bytes, *, bodyless: bool) -> Answer:
        connection = await self._connected()
        try:
            return await self._asked(connection, data, bodyless=bodyless)
        except asyncio.CancelledError:
            connection.close()
            raise

    def _close_idle(self) -> None:
        """Close the others too: the server may have closed them, and a new one shows."""
        for each in list(self._idle):
            each.close()
        self._idle.clear()

    def _asked(
        self, connection: Connection, data: bytes, *, bodyless: bool
    ) -> "asyncio.Future[Answer]":
        self._expect(connection)
        return connection.ask(data, bodyless=bodyless)

    def _expect(self, connection: Connection) -> None:
        """Note when to give up the answer to the request that is about to be sent."""
        self._asked_for[connection] = time.monotonic() + self._patience.whole
        if self._expires is None:
            self._expire()

    def _expire(self) -> None:
        """Fail requests whose time is over, and come again when the next one's is."""
        now, self._expires = time.monotonic(), None
        over: list[Connection] = []
        for connection, due in self._asked_for.items():
            if due > now:
                later = asyncio.get_running_loop().call_later
                self._expires = later(due - now, self._expire)
                break
            over.append(connection)
        # The end of a request may begin others, which are to find a timer that runs.
        for connection in over:
            connection.expire(f"no whole answer within {self._patience.whole:g} s")

    async def _connected(self) -> Connection:
        origin, seconds = self._origin, self._patience.connect
        try:
            async with asyncio.timeout(seconds):
                found = await self._guard.addresses(origin.host, origin.port)
                return await self._first(found)
        except TimeoutError as error:
            msg = f"no connection to {origin.host_header} within {seconds:g} s"
            raise SendFailed(msg) from error
        except AddressRefused as error:
            raise Forbidden(str(error)) from error
        except Unresolved as error:
            raise SendFailed(str(error)) from error
        except ssl.SSLError as error:
            msg = f"TLS with {origin.host_header} failed: {error}"
            raise SendFailed(msg) from error
        except OSError as error:
            msg = f"no connection to {origin.host_header}: {error}"
            raise SendFailed(msg) from error

    async def _first(self, addresses: list[str]) -> Connection:
        """Connect to the address whose turn it is, or, if that fails, to the next that answers."""
        turn = next(self._turns) % len(addresses)
        in_turn = addresses[turn:] + addresses[:turn]
        for address in in_turn[:-1]:
            try:
                async with asyncio.timeout(self._patience.connect / len(addresses)):
                    return await self._connect(address)
            except (OSError, TimeoutError):
                continue  # the next address is tried, and the last error is reported
        return await self._connect(in_turn[-1])

    async def _connect(self, address: str) -> Connection:
        origin, loop = self._origin, asyncio.get_running_loop()
        make = partial(
            Connection,
            most=self._patience.most_bytes,
            released=self._released,
            lost=self._lost,
        )
        context = trusting(self._ca_file) if origin.tls else None
        _, connection = await loop.create_connection(
            make,
            address,  # an address from the guard, not a name
            origin.port,
            ssl=context,
            server_hostname=origin.host if context is not None else None,
        )
        self._open.add(connection)
        self.made += 1
        if self._looks is None:
            self._looks = loop.call_later(_LOOK_SECONDS, self._look)
        return connection

    def _released(self, connection: Connection) -> None:
        self._asked_for.pop(connection, None)
        connection.idle_since = now = time.monotonic()
        if now - connection.made > self._patience.age or now < self._apart_until:
            connection.close()
        else:
            self._idle[connection] = None

    def _lost(self, connection: Connection) -> None:
        self._asked_for.pop(connection, None)
        self._idle.pop(connection, None)
        self._open.discard(connection)
        if connection.strayed:
            self._apart_until = time.monotonic() + self._patience.age
            for each in list(self._idle):
                each.close()

    def _look(self) -> None:
        """Close connections that were idle for too long."""
        oldest = time.monotonic() - self._patience.idle
        for each in [each for each in self._idle if each.idle_since < oldest]:
            each.close()
        self._looks = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)


def is_farewell(answer: Answer) -> bool:
    """
    Return whether a server says with an answer on a kept connection that it was idle for too long.

    The server sends it before it closes the connection, and our request crosses it.
    """
    return answer.status == _TIMED_OUT and "close" in answer.headers.get("connection", "").lower()


@cache
def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities, and those in a file."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context
