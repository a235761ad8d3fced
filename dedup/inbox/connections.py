"""Connections of psycopg that handlers take in turn, each for one transaction at a time."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from dedup.inbox.choices import Prepare
from outbox import forks
from outbox.postgres.away import is_swapped, says_away
from outbox.postgres.ours import ADAPTERS
from outbox.postgres.overdue import AsyncConnection, Connection
from outbox.postgres.session import is_direct, is_direct_async, settle

PATIENCE = 30.0
"""Default for the seconds that the server may be silent within a statement."""


class Connections:
    """
    One connection for each running handler; a broken one is not given out again.

    A connection breaks if the server is silent within a statement for `patience` seconds. It may
    lead through a pooler that shares sessions: then nothing is prepared or set in them.
    """

    def __init__(
        self,
        dsn: str,
        *,
        patience: float = PATIENCE,
        ours: bool = False,
        prepare: Prepare = "auto",
    ) -> None:
        """Connect to `dsn`; `ours`: handlers never see them, so they may have our settings."""
        self._dsn, self._patience, self._ours = dsn, patience, ours
        self._prepare: Prepare = prepare
        self._idle: deque[Connection] = deque()
        forks.know(self)

    def forked(self) -> None:
        """Leave the parent process what belongs to it."""
        forks.leave(self._idle)
        self._idle = deque()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """
        Yield a connection in a transaction, which commits at the end unless the block raises.
        """
        conn = self._take() or self._connect()
        try:
            with conn.transaction():
                if self._ours:
                    settle(conn)
                yield conn
        except Exception as error:
            if says_away(error):
                # A new connection may lead to a server that takes writes.
                conn.close()
            if is_swapped(error):
                self._prepare = "never"
            raise
        finally:
            if not conn.closed:
                self._idle.append(conn)

    def close(self) -> None:
        """Close the idle ones."""
        while (conn := self._take()) is not None:
            conn.close()

    def _connect(self) -> Connection:
        context = ADAPTERS if self._ours else None
        conn = Connection.open(self._dsn, patience=self._patience, context=context)
        if self._prepare == "never" or not is_direct(conn):
            # After a pooler switches sessions, the next one would not know statements prepared in
            # the last one.
            conn.prepare_threshold = None
        return conn

    def _take(self) -> Connection | None:
        while True:
            try:
                conn = self._idle.pop()
            except IndexError:
                return None
            if not conn.closed:
                return conn


class AsyncConnections:
    """As `Connections`, for async handlers on one event loop."""

    def __init__(self, dsn: str, *, patience: float = PATIENCE, prepare: Prepare = "auto") -> None:
        self._dsn, self._patience, self._prepare = dsn, patience, prepare
        self._idle: deque[AsyncConnection] = deque()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """
        Yield a connection in a transaction, which commits at the end unless the block raises.
        """
        idle = self._idle
        while idle and idle[-1].closed:
            idle.pop()
        conn = idle.pop() if idle else await self._connect()
        try:
            async with conn.transaction():
                yield conn
        except Exception as error:
            if says_away(error):
                await conn.close()  # as above
            if is_swapped(error):
                self._prepare = "never"
            raise
        finally:
            if not conn.closed:
                idle.append(conn)

    async def _connect(self) -> AsyncConnection:
        conn = await AsyncConnection.open(self._dsn, patience=self._patience)
        if self._prepare == "never" or not await is_direct_async(conn):
            conn.prepare_threshold = None  # as above
        return conn

    def close(self) -> None:
        """Close the idle ones; their loop may be over by then."""
        while self._idle:
            conn = self._idle.pop()  # otherwise it would be lost before it is closed
            conn.pgconn.finish()
