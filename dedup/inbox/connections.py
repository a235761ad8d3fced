"""Connections of psycopg that handlers take in turn, each for one transaction at a time."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from outbox import forks
from outbox.postgres.overdue import AsyncConnection, Connection
from outbox.postgres.session import SESSION, is_direct, settle

PATIENCE = 30.0
"""Seconds that the server may be silent within a statement, where nobody says otherwise."""


class Connections:
    """
    As many as there are handlers at work at a time; one that breaks is not given out again.

    One on which the server is silent for `patience` seconds within a statement breaks.
    """

    def __init__(self, dsn: str, *, patience: float = PATIENCE, ours: bool = False) -> None:
        """Connect to `dsn`; `ours`: no handler sees them, and their settings may be ours."""
        self._dsn, self._patience, self._ours = dsn, patience, ours
        self._idle: deque[Connection] = deque()
        forks.know(self)

    def forked(self) -> None:
        """Leave to the parent process what is its own."""
        forks.leave(self._idle)
        self._idle = deque()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Give a connection in a transaction, which commits at the end unless the block raises."""
        conn = self._take() or self._connect()
        try:
            with conn.transaction():
                yield conn
        finally:
            if not conn.closed:
                self._idle.append(conn)

    def close(self) -> None:
        """Close those that nobody has."""
        while (conn := self._take()) is not None:
            conn.close()

    def _connect(self) -> Connection:
        conn = Connection.open(self._dsn, patience=self._patience)
        if not is_direct(conn):
            # Of a pooler's sessions the next one may not know what was prepared in the last one.
            conn.prepare_threshold = None
        elif self._ours:
            settle(conn)
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
    """As `Connections`, for handlers that are awaited on one event loop."""

    def __init__(self, dsn: str, *, patience: float = PATIENCE) -> None:
        self._dsn, self._patience = dsn, patience
        self._idle: deque[AsyncConnection] = deque()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Give a connection in a transaction, which commits at the end unless the block raises."""
        idle = self._idle
        while idle and idle[-1].closed:
            idle.pop()
        conn = idle.pop() if idle else await self._connect()
        try:
            async with conn.transaction():
                yield conn
        finally:
            if not conn.closed:
                idle.append(conn)

    async def _connect(self) -> AsyncConnection:
        conn = await AsyncConnection.open(self._dsn, patience=self._patience)
        row = await (await conn.execute(SESSION)).fetchone()
        if row is None or row[0] != conn.info.backend_pid:
            conn.prepare_threshold = None  # as above
        return conn

    def close(self) -> None:
        """Close those that nobody has; their loop may be over by then."""
        while self._idle:
            conn = self._idle.pop()  # or it would be gone before what it holds is closed
            conn.pgconn.finish()
