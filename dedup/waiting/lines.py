"""Ask and listen on a caller's connection of psycopg or asyncpg."""

import asyncio
import selectors
import time
from typing import Any, Protocol

import psycopg

from dedup.rules.waiting import Sight, Wanted
from dedup.waiting import asking
from outbox.postgres.ours import cursor
from outbox.postgres.session import is_direct, is_direct_async
from outbox.waiting.asking import ask, ask_async, committed, committed_async, role
from outbox.writing.statements import Statement

_SESSION = Statement(b"SELECT pg_catalog.textout(pg_catalog.pg_backend_pid()::text)", [])


class Line(Protocol):
    """A connection that a caller waits on."""

    def listen(self) -> None:
        """Listen from now on, or raise if notifications could be lost."""

    def register(self, schema: str, event: Wanted) -> None:
        """Ask the inbox to notify."""

    def look(self, schema: str, event: Wanted) -> list[Sight]:
        """Return what has been handled."""

    def wait(self, payload: str, seconds: float) -> None:
        """Wait for a notification with this text, at most so long."""

    def close(self) -> None:
        """Listen no longer; the connection is the caller's again."""


class AwaitedLine(Protocol):
    """As `Line`, on a connection that has to be awaited."""

    async def listen(self) -> None: ...
    async def register(self, schema: str, event: Wanted) -> None: ...
    async def look(self, schema: str, event: Wanted) -> list[Sight]: ...
    async def wait(self, payload: str, seconds: float) -> None: ...
    async def close(self) -> None: ...


class Heard:
    """The notifications of a psycopg connection, which may come within any statement."""

    def __init__(self, conn: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
        self._conn, self.payloads = conn, set[str]()
        conn.add_notify_handler(self._note)

    def _note(self, notify: psycopg.Notify) -> None:
        if notify.channel == asking.CHANNEL:
            self.payloads.add(notify.payload)

    def read(self) -> set[str]:
        """
        Return the payloads that have come since the last call; nothing is waited for.

        Raises:
            psycopg.OperationalError: the connection is lost.
        """
        line = self._conn.pgconn
        line.consume_input()
        while (notify := line.notifies()) is not None:
            if notify.relname.decode() == asking.CHANNEL:
                self.payloads.add(notify.extra.decode())
        found, self.payloads = self.payloads, set()
        return found

    def stop(self) -> None:
        """Read no more."""
        self._conn.remove_notify_handler(self._note)


class PsycopgLine:
    """A connection of psycopg that nobody else uses meanwhile."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        self._heard: Heard | None = None

    def listen(self) -> None:
        """As `Line.listen`."""
        with committed(self._conn):
            asking.require_direct(direct=is_direct(self._conn))
            self._heard = Heard(self._conn)
            cursor(self._conn).execute(asking.LISTEN.query)

    def register(self, schema: str, event: Wanted) -> None:
        """As `Line.register`."""
        self._ask(schema, asking.register(schema, [event]))

    def look(self, schema: str, event: Wanted) -> list[Sight]:
        """As `Line.look`."""
        return asking.lines(self._ask(schema, asking.look(schema, [event])))

    def wait(self, payload: str, seconds: float) -> None:
        """As `Line.wait`."""
        if self._heard is None:
            time.sleep(seconds)
            return
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._conn.fileno(), selectors.EVENT_READ)
            while payload not in self._heard.read():
                if (rest := until - time.monotonic()) <= 0:
                    return
                selector.select(rest)

    def close(self) -> None:
        """As `Line.close`."""
        if self._heard is not None:
            self._heard.stop()
            if not self._conn.closed:
                ask(self._conn, asking.UNLISTEN)

    def _ask(self, schema: str, asked: Statement) -> list[str]:
        try:
            return ask(self._conn, asked)
        except psycopg.Error as error:
            if explained := asking.explained(error, schema, self._conn.info.user):
                raise explained from error
            raise


class PsycopgAwaitedLine:
    """As `PsycopgLine`, on an event loop."""

    def __init__(self, conn: psycopg.AsyncConnection[Any]) -> None:
        self._conn = conn
        self._heard: Heard | None = None

    async def listen(self) -> None:
        """As `Line.listen`."""
        asking.require_direct(direct=await self._is_direct())
        self._heard = Heard(self._conn)
        await ask_async(self._conn, asking.LISTEN)

    async def register(self, schema: str, event: Wanted) -> None:
        """As `Line.register`."""
        await self._ask(schema, asking.register(schema, [event]))

    async def look(self, schema: str, event: Wanted) -> list[Sight]:
        """As `Line.look`."""
        return asking.lines(await self._ask(schema, asking.look(schema, [event])))

    async def wait(self, payload: str, seconds: float) -> None:
        """As `Line.wait`."""
        if self._heard is None:
            await asyncio.sleep(seconds)
            return
        until = time.monotonic() + seconds
        while payload not in self._heard.read():
            if (rest := until - time.monotonic()) <= 0:
                return
            await readable(self._conn, rest)

    async def close(self) -> None:
        """As `Line.close`."""
        if self._heard is not None:
            self._heard.stop()
            if not self._conn.closed:
                await ask_async(self._conn, asking.UNLISTEN)

    async def _is_direct(self) -> bool:
        async with committed_async(self._conn):
            return await is_direct_async(self._conn)

    async def _ask(self, schema: str, asked: Statement) -> list[str]:
        try:
            return await ask_async(self._conn, asked)
        except psycopg.Error as error:
            if explained := asking.explained(error, schema, self._conn.info.user):
                raise explained from error
            raise


class AsyncpgLine:
    """A connection of asyncpg that nobody else uses meanwhile."""

    def __init__(self, conn: Any) -> None:  # noqa: ANN401  # asyncpg may not be installed
        self._conn = conn
        self._payloads: set[str] | None = None
        self._bell = asyncio.Event()

    async def listen(self) -> None:
        """As `Line.listen`."""
        (session,) = await ask_async(self._conn, _SESSION)
        asking.require_direct(direct=session == str(self._conn.get_server_pid()))
        self._payloads = set()
        self._conn.add_termination_listener(self._ended)
        await self._conn.add_listener(asking.CHANNEL, self._note)

    async def register(self, schema: str, event: Wanted) -> None:
        """As `Line.register`."""
        await self._ask(schema, asking.register(schema, [event]))

    async def look(self, schema: str, event: Wanted) -> list[Sight]:
        """As `Line.look`."""
        return asking.lines(await self._ask(schema, asking.look(schema, [event])))

    async def wait(self, payload: str, seconds: float) -> None:
        """As `Line.wait`."""
        if self._payloads is None:
            await asyncio.sleep(seconds)
            return
        until = time.monotonic() + seconds
        while payload not in self._payloads and not self._conn.is_closed():
            if (rest := until - time.monotonic()) <= 0:
                return
            self._bell.clear()
            await _rung(self._bell, rest)
        self._payloads.discard(payload)

    async def close(self) -> None:
        """As `Line.close`."""
        if self._payloads is not None and not self._conn.is_closed():
            self._conn.remove_termination_listener(self._ended)
            await self._conn.remove_listener(asking.CHANNEL, self._note)

    def _note(self, _conn: object, _pid: int, _channel: str, payload: str) -> None:
        if self._payloads is not None:
            self._payloads.add(payload)
        self._bell.set()

    def _ended(self, _conn: object) -> None:
        self._bell.set()

    async def _ask(self, schema: str, asked: Statement) -> list[str]:
        try:
            return await ask_async(self._conn, asked)
        except Exception as error:
            if explained := asking.explained(error, schema, role(self._conn)):
                raise explained from error
            raise


async def readable(
    conn: psycopg.AsyncConnection[Any], seconds: float, also: asyncio.Event | None = None
) -> None:
    """Wait until the server has sent something or `also` is set, at most so long."""
    loop, bell, line = asyncio.get_running_loop(), also or asyncio.Event(), conn.fileno()
    loop.add_reader(line, bell.set)
    try:
        await _rung(bell, seconds)
    finally:
        loop.remove_reader(line)


async def _rung(bell: asyncio.Event, seconds: float) -> None:
    waiting = asyncio.ensure_future(bell.wait())
    try:
        await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
