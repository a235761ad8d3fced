"""Connections of psycopg without a server, which record what is written on them."""

# ruff: noqa: ANN401 # these take and return whatever the driver's own do
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any, Self

from psycopg import AsyncConnection, Connection, Rollback
from psycopg.pq import TransactionStatus

from outbox.testing.recording import Answers, Recorded, Recording
from outbox.writing.append import Append
from outbox.writing.find import Way, register
from outbox.writing.psycopg import require_transaction

_NO_SERVER = (
    "a recorded connection has no server, so it has no {name}; test this code with a real "
    "connection: the fixture outbox_database"
)


class _Info(SimpleNamespace):
    """The few facts that a connection without a server has."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_NO_SERVER.format(name=f"info.{name}"))


class Rows:
    """The answer to a query: a cursor of rows that the test has given."""

    def __init__(self, recording: Recording, begin: Any) -> None:
        self._recording, self._begin = recording, begin
        self._rows: list[Any] = []
        self.rowcount = -1
        self.description = None

    def execute(self, query: Any, params: Any = None, **_: Any) -> "Rows":
        self._begin()
        self._rows = self._recording.ask(query, params)
        self.rowcount = len(self._rows)
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], **_: Any) -> None:
        for params in params_seq:
            self.execute(query, params)

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        found, self._rows = self._rows[:size], self._rows[size:]
        return found

    def fetchall(self) -> list[Any]:
        found, self._rows = self._rows, []
        return found

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRows:
    """The same, to be awaited."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def rowcount(self) -> int:
        return self._rows.rowcount

    async def execute(self, query: Any, params: Any = None, **_: Any) -> "AsyncRows":
        self._rows.execute(query, params)
        return self

    async def executemany(self, query: Any, params_seq: Iterable[Any], **_: Any) -> None:
        self._rows.executemany(query, params_seq)

    async def fetchone(self) -> Any:
        return self._rows.fetchone()

    async def fetchmany(self, size: int = 1) -> list[Any]:
        return self._rows.fetchmany(size)

    async def fetchall(self) -> list[Any]:
        return self._rows.fetchall()

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._rows:
            yield row

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Transactions(Recorded):
    """Begins and ends transactions, for both kinds of connection."""

    def __init__(self, answers: Answers | None, *, autocommit: bool) -> None:
        self.recording = Recording(answers)
        self._autocommit_ = autocommit
        self._closed_ = False

    @property
    def pgconn(self) -> Any:
        raise AttributeError(_NO_SERVER.format(name="pgconn"))

    @pgconn.setter
    def pgconn(self, _: Any) -> None:
        raise AttributeError(_NO_SERVER.format(name="pgconn"))

    @property
    def closed(self) -> bool:
        return self._closed_

    @property
    def info(self) -> Any:
        is_open = self.recording.journal.depth > 0
        status = TransactionStatus.INTRANS if is_open else TransactionStatus.IDLE
        return _Info(transaction_status=status, dbname="recorded", user="recorded")

    def _begin_implicitly(self) -> None:
        if not self._autocommit_ and not self.recording.journal.depth:
            self.recording.journal.begin()

    @contextmanager
    def _block(self, *, force_rollback: bool) -> Iterator[None]:
        journal = self.recording.journal
        journal.begin()
        level = journal.depth
        try:
            yield
        except BaseException as error:
            self._end(level, keep=False)
            # Psycopg swallows the exception by which a caller asks for a rollback.
            if not isinstance(error, Rollback):
                raise
        else:
            self._end(level, keep=not force_rollback)

    def _end(self, level: int, *, keep: bool) -> None:
        journal = self.recording.journal
        while journal.depth >= level:
            (journal.commit if keep else journal.rollback)()


class RecordedConnection(_Transactions, Connection[Any]):
    """A connection of psycopg without a server; `events` are those that were written."""

    @property
    def autocommit(self) -> bool:
        return self._autocommit_

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._autocommit_ = value

    def cursor(self, *_: Any, **__: Any) -> Any:
        return Rows(self.recording, self._begin_implicitly)

    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        return self.cursor().execute(query, params)

    @contextmanager
    def transaction(
        self,
        savepoint_name: str | None = None,  # noqa: ARG002  # the driver's
        force_rollback: bool = False,  # noqa: FBT001, FBT002  # the driver's
    ) -> Iterator[Any]:
        with self._block(force_rollback=force_rollback):
            yield self

    def commit(self) -> None:
        self.recording.journal.commit_all()

    def rollback(self) -> None:
        self.recording.journal.rollback_all()

    def close(self) -> None:
        self.rollback()
        self._closed_ = True

    def __exit__(self, kind: object, *_: object) -> None:
        (self.rollback if kind else self.commit)()
        self.close()


class RecordedAsyncConnection(_Transactions, AsyncConnection[Any]):
    """The same, to be awaited."""

    @property
    def autocommit(self) -> bool:
        return self._autocommit_

    @autocommit.setter
    def autocommit(self, _: bool) -> None:
        msg = "`await conn.set_autocommit(…)`, on a connection that has to be awaited"
        raise AttributeError(msg)

    async def set_autocommit(self, value: bool) -> None:  # noqa: FBT001  # the driver's
        self._autocommit_ = value

    def cursor(self, *_: Any, **__: Any) -> Any:
        return AsyncRows(Rows(self.recording, self._begin_implicitly))

    async def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        return await self.cursor().execute(query, params)

    @asynccontextmanager
    async def transaction(
        self,
        savepoint_name: str | None = None,  # noqa: ARG002  # the driver's
        force_rollback: bool = False,  # noqa: FBT001, FBT002  # the driver's
    ) -> AsyncIterator[Any]:
        with self._block(force_rollback=force_rollback):
            yield self

    async def commit(self) -> None:
        self.recording.journal.commit_all()

    async def rollback(self) -> None:
        self.recording.journal.rollback_all()

    async def close(self) -> None:
        self.recording.journal.rollback_all()
        self._closed_ = True

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.rollback if kind else self.commit)()
        await self.close()


def _write(conn: RecordedConnection | RecordedAsyncConnection, append: Append) -> None:
    require_transaction(conn)
    if append.events:
        conn.recording.record(append.statement())


async def _write_async(conn: RecordedAsyncConnection, append: Append) -> None:
    _write(conn, append)


register(RecordedConnection, Way(_write, awaits=False))
register(RecordedAsyncConnection, Way(_write_async, awaits=True))
