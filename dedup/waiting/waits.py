"""Share one connection between all callers of a process that wait."""

import asyncio
import logging
import time
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import psycopg

from dedup.inbox import schema as inbox_schema
from dedup.rules.waiting import Applied, Sight, TimedOut, Vigil, Wanted, require_times, wanted
from dedup.waiting import asking
from dedup.waiting.lines import Heard, readable
from outbox.errors import BadSettings, first_line
from outbox.event import Event
from outbox.postgres.away import COLLISIONS, says_away
from outbox.postgres.overdue import AsyncConnection
from outbox.postgres.session import is_direct_async
from outbox.waiting.asking import ask_async
from outbox.writing.statements import Statement

_log = logging.getLogger("dovecote.waits")

_AT_ONCE = 1000
# A lock, a time limit or an operator has stopped the statement: it is asked again.
_PASSING = frozenset({*COLLISIONS, "57014"})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Waits:
    """
    Callers on one event loop that wait for effects, with one connection for all of them.

    `async with Waits(dsn) as waits:` around the application, then `await waits.handled(…)` in
    each request. While the connection is lost callers go on waiting, and it is made anew. Nobody
    misses an event by that: whatever was committed meanwhile is found at once.
    """

    def __init__(
        self, dsn: str, *, schema: str = inbox_schema.DEFAULT_SCHEMA, patience: float = 30.0
    ) -> None:
        """Connect to `dsn` once entered; the server may be silent for `patience` seconds."""
        self._dsn, self._schema, self._patience = dsn, schema, patience
        self._vigils: dict[Wanted, Vigil] = {}
        self._by_payload: dict[str, Wanted] = {}
        """Events by the texts of their notifications."""
        self._futures: dict[Wanted, set[asyncio.Future[Applied]]] = {}
        self._bell = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """
        Connect, and listen.

        Raises:
            psycopg.OperationalError: the server does not answer.
            SharedSession: a pooler may lose notifications.
            NotAllowed: the role may not wait; the message has the command that lets it.
            SchemaMissing: there is no inbox, or an older one.
        """
        conn = await self._connect()
        self._task = asyncio.create_task(self._run(conn))
        return self

    async def __aexit__(
        self,
        _: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect; callers that still wait are cancelled."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        for future in self._waiting():
            future.cancel()

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return sum(map(len, self._futures.values()))

    async def handled(
        self,
        event: Event[Any] | UUID | str,
        *,
        by: str,
        timeout: float,  # noqa: ASYNC109  # the result says that it is over
        source: str = "dovecote",
    ) -> Applied | TimedOut:
        """
        As `dedup.handled_async`, on the connection that all callers share.

        Raises:
            BadSettings: an argument is impossible, or `async with` is not open.
        """
        require_times(timeout, None)
        if self._task is None:
            msg = "these Waits are not open: wait within `async with Waits(dsn) as waits:`"
            raise BadSettings(msg)
        if self._task.done():
            self._task.result()
        awaited, now = wanted(event, source, by), time.monotonic()
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        vigil = self._vigils.setdefault(awaited, Vigil(now))
        vigil.due = now
        self._by_payload[awaited.payload] = awaited
        self._futures.setdefault(awaited, set()).add(future)
        self._bell.set()
        try:
            await asyncio.wait([future], timeout=timeout)
            return future.result() if future.done() else vigil.timed_out(timeout, by)
        finally:
            self._forget(awaited, future)

    async def _run(self, conn: AsyncConnection) -> None:
        pause = _FIRST_PAUSE
        try:
            while True:
                try:
                    await self._serve(conn)
                except psycopg.Error as error:
                    if not (conn.closed or error.sqlstate in _PASSING or says_away(error)):
                        raise
                    _log.warning("waiting callers: %s; connecting again", first_line(error))
                    await asyncio.sleep(0 if conn.closed else pause)
                await conn.close()
                while True:
                    try:
                        conn = await self._connect()
                    except psycopg.OperationalError as error:
                        _log.warning("waiting callers: %s", first_line(error))
                        await asyncio.sleep(pause)
                        pause = min(pause * 2, _LONGEST_PAUSE)
                    else:
                        pause = _FIRST_PAUSE
                        break
        except Exception as error:
            for future in self._waiting():
                if not future.done():
                    future.set_exception(error)
            raise
        finally:
            await conn.close()

    async def _connect(self) -> AsyncConnection:
        conn = await AsyncConnection.open(self._dsn, patience=self._patience)
        try:
            asking.require_direct(direct=await is_direct_async(conn))
            await ask_async(conn, asking.LISTEN)
            # A right that is missing is reported now, and not to the first caller.
            await self._ask(conn, asking.register(self._schema, []))
        except BaseException:
            await conn.close()
            raise
        return conn

    async def _serve(self, conn: AsyncConnection) -> None:
        heard = Heard(conn)
        now = time.monotonic()
        for vigil in self._vigils.values():
            vigil.start_again(now)
        while True:
            self._bell.clear()
            now = time.monotonic()
            told = {self._by_payload.get(each) for each in heard.read()}
            due = [
                each for each, vigil in self._vigils.items() if vigil.due <= now or each in told
            ]
            for start in range(0, len(due), _AT_ONCE):
                await self._settle(conn, due[start : start + _AT_ONCE])
            if due:
                continue
            until = min((each.due for each in self._vigils.values()), default=now + 60)
            await readable(conn, max(0.0, until - now), self._bell)

    async def _settle(self, conn: AsyncConnection, events: list[Wanted]) -> None:
        now = time.monotonic()
        watched = {each: vigil for each in events if (vigil := self._vigils.get(each))}
        if new := [each for each, vigil in watched.items() if vigil.is_to_register(now)]:
            await self._ask(conn, asking.register(self._schema, new))
            for each in new:
                watched[each].registered(now)
        sights = asking.lines(await self._ask(conn, asking.look(self._schema, list(watched))))
        now, snapshot = time.monotonic(), Sight(*sights[0][:2], None, None, None, None)
        told: dict[int | None, list[Sight]] = {}
        for sight in sights:
            told.setdefault(sight.nr, []).append(sight)
        for nr, (each, vigil) in enumerate(watched.items(), 1):
            found = vigil.seen(told.get(nr, [snapshot]), now)
            if found is not None:
                for future in self._futures.get(each, ()):
                    if not future.done():
                        future.set_result(found)

    async def _ask(self, conn: AsyncConnection, asked: Statement) -> list[str]:
        try:
            return await ask_async(conn, asked)
        except psycopg.Error as error:
            if explained := asking.explained(error, self._schema, conn.info.user):
                raise explained from error
            raise

    def _waiting(self) -> list[asyncio.Future[Applied]]:
        return [future for each in self._futures.values() for future in each]

    def _forget(self, awaited: Wanted, future: asyncio.Future[Applied]) -> None:
        futures = self._futures[awaited]
        futures.discard(future)
        if not futures:
            del self._futures[awaited], self._vigils[awaited], self._by_payload[awaited.payload]
