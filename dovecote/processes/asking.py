"""Ask a process of ours over HTTP, and hand a body to it as the client sends it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import h11  # uvicorn brings it: the server of the processes speaks with it, too

from dovecote.process.http.server import Receive, Scope
from outbox.errors import DovecoteError

_MOST_READ = 64 << 10
_GOES_ON, _FINAL = 100, 200

OF_A_CONNECTION = frozenset(
    {
        *("connection", "content-length", "date", "host", "keep-alive", "origin", "server", "te"),
        *("trailer", "transfer-encoding", "upgrade", "proxy-connection", "expect"),
    }
)
"""Headers that are not handed on; the server of the parent has judged host and origin."""


class Unreached(DovecoteError):
    """The process has not got the request: another one may do it."""


class Unanswered(DovecoteError):
    """The process has got the request, and did not answer: it may have done what was asked."""


class TooLong(DovecoteError):
    """The body is longer than it may be."""


class Gone(DovecoteError):
    """The client has ended its request."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one of the processes."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    length: str | None = None
    """The body's length, as the client says it; with neither this nor `in_chunks` it has none."""
    in_chunks: bool = False

    @property
    def has_body(self) -> bool:
        """Whether the client sends a body."""
        return self.in_chunks or self.length not in {None, "0"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a process."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


def request_of(scope: Scope, *more: tuple[str, str]) -> Request:
    """Return the request of a client as one for a process, with the headers `more`."""
    query = scope["query_string"].decode("ascii")
    found = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    taken = {name for name, _ in more}
    kept = [pair for pair in found if pair[0] not in OF_A_CONNECTION and pair[0] not in taken]
    known = dict(found)
    return Request(
        scope["method"],
        scope["raw_path"].decode("ascii") + (f"?{query}" if query else ""),
        [*kept, *more],
        known.get("content-length"),
        "transfer-encoding" in known,
    )


async def ask(
    port: int, request: Request, receive: Receive | None = None, most: int = 0
) -> Answer:
    """
    Return the answer of the process that listens on `port`.

    The body comes from `receive`, once the process wants it, and has at most `most` bytes. A
    process refuses a stranger before that.

    Raises:
        Unreached: nothing listens there.
        Unanswered: the process ended first, or what it said is no answer.
        TooLong: the body is longer than that.
        Gone: the client ended its request before the body was whole.
    """
    async with _connected(port) as (reader, writer):
        talk = _Talk(reader, writer, request)
        try:
            await talk.begin()
            if not request.has_body or receive is None:
                return await talk.answer()
            if await talk.wants_body():
                return await _answer_meanwhile(talk, receive, most)
            return await talk.answer()
        except (OSError, EOFError, h11.ProtocolError) as error:
            msg = f"the process on port {port} did not answer: {error}"
            raise Unanswered(msg) from error


async def _answer_meanwhile(talk: "_Talk", receive: Receive, most: int) -> Answer:
    """Hand the body on, and return the answer, for which not all of the body may be needed."""
    answer = asyncio.create_task(talk.answer())
    body = asyncio.create_task(_hand_over(talk, receive, most))
    try:
        await asyncio.wait({answer, body}, return_when=asyncio.FIRST_COMPLETED)
        if body.done() and not answer.done():
            body.result()
        return await answer
    finally:
        for each in (answer, body):
            each.cancel()
        await asyncio.gather(answer, body, return_exceptions=True)


async def _hand_over(talk: "_Talk", receive: Receive, most: int) -> None:
    handed = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            msg = "the client is gone"
            raise Gone(msg)
        part = message.get("body", b"")
        handed += len(part)
        if handed > most:
            msg = f"the body is longer than {most} bytes"
            raise TooLong(msg)
        more = message.get("more_body", False)
        await talk.hand(part, whole=not more)
        if not more:
            return


@asynccontextmanager
async def _connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        msg = f"nothing answers on port {port}: {error.strerror}"
        raise Unreached(msg) from error
    try:
        yield reader, writer
    finally:
        # The rest of a body would wait for a process that has stopped.
        writer.transport.abort()
        with contextlib.suppress(OSError):  # it was broken already, which has been told
            await writer.wait_closed()


class _Talk:
    """One request and its answer, on a connection of their own."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request
    ) -> None:
        self._reader, self._writer, self._request = reader, writer, request
        self._http = h11.Connection(h11.CLIENT)
        self._first: h11.Response | None = None

    async def begin(self) -> None:
        """Send the head; without a body it is the whole request."""
        host = "{}:{}".format(*self._writer.get_extra_info("peername")[:2])
        headers = [("host", host), *self._request.headers, *self._of_body()]
        await self._send(
            h11.Request(method=self._request.method, target=self._request.target, headers=headers)
        )
        if not self._request.has_body:
            await self._send(h11.EndOfMessage())

    async def wants_body(self) -> bool:
        """Wait until the process asks for the body, or has an answer without it."""
        found = await self._next()
        if isinstance(found, h11.Response):
            self._first = found
        return isinstance(found, h11.InformationalResponse) and found.status_code == _GOES_ON

    async def hand(self, part: bytes, *, whole: bool) -> None:
        """Send a part of the body; `whole`: the last one."""
        if part:
            await self._send(h11.Data(data=part))
        if whole:
            await self._send(h11.EndOfMessage())

    async def answer(self) -> Answer:
        """Return the whole answer."""
        found = self._first or await self._next()
        while not isinstance(found, h11.Response):
            found = await self._next()
        body = bytearray()
        while not isinstance(part := await self._next(), h11.EndOfMessage):
            if isinstance(part, h11.Data):
                body += part.data
        return Answer(found.status_code, list(found.headers), bytes(body))

    async def _send(self, event: h11.Request | h11.Data | h11.EndOfMessage) -> None:
        if (sent := self._http.send(event)) is not None:
            self._writer.write(sent)
            await self._writer.drain()

    async def _next(self) -> object:
        while (found := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_MOST_READ))
        if isinstance(found, h11.ConnectionClosed) or found is h11.PAUSED:
            msg = "it ended the connection"
            raise EOFError(msg)
        return found

    def _of_body(self) -> Iterator[tuple[str, str]]:
        if not self._request.has_body:
            yield "content-length", "0"
            return
        yield "expect", "100-continue"
        if self._request.in_chunks:
            yield "transfer-encoding", "chunked"
        else:
            yield "content-length", self._request.length or "0"
