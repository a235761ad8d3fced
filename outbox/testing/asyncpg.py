"""A connection of asyncpg without a server, which records what is written on it."""

# ruff: noqa: ANN401 # these take and return whatever the driver's own do
from collections.abc import Iterable
from typing import Any

from asyncpg import Connection

from outbox.testing.recording import Answers, Recorded, Recording
from outbox.writing.append import Append
from outbox.writing.asyncpg import require_transaction
from outbox.writing.find import Way, register


class Block:
    """A transaction, or a savepoint within one, as `Connection.transaction` returns it."""

    def __init__(self, recording: Recording) -> None:
        self._journal = recording.journal
        self._level = 0

    async def start(self) -> None:
        self._journal.begin()
        self._level = self._journal.depth

    async def commit(self) -> None:
        while self._journal.depth >= self._level:
            self._journal.commit()

    async def rollback(self) -> None:
        while self._journal.depth >= self._level:
            self._journal.rollback()

    async def __aenter__(self) -> None:
        await self.start()

    async def __aexit__(self, kind: object, *_: object) -> None:
        await (self.rollback if kind else self.commit)()


class RecordedAsyncpg(Recorded, Connection):
    """A connection of asyncpg without a server; `events` are those that were written."""

    def __init__(self, answers: Answers | None) -> None:  # not asyncpg's, which wants a server
        self.recording = Recording(answers)

    def __del__(self) -> None:
        """Do nothing: there is no connection that could have been forgotten."""

    def __repr__(self) -> str:
        return "<a recorded connection of asyncpg>"

    def transaction(self, **_: Any) -> Any:
        return Block(self.recording)

    def is_in_transaction(self) -> bool:
        return self.recording.journal.depth > 0

    def is_closed(self) -> bool:
        return False

    async def close(self, **_: Any) -> None:
        self.recording.journal.rollback_all()

    async def execute(self, query: str, *args: Any, **_: Any) -> str:
        self.recording.ask(query, args)
        return query.split(maxsplit=1)[0].upper() if query.strip() else ""

    async def executemany(self, command: str, args: Iterable[Any], **_: Any) -> None:
        for each in args:
            self.recording.ask(command, each)

    async def fetch(self, query: str, *args: Any, **_: Any) -> list[Any]:
        return self.recording.ask(query, args)

    async def fetchrow(self, query: str, *args: Any, **_: Any) -> Any:
        return next(iter(self.recording.ask(query, args)), None)

    async def fetchval(self, query: str, *args: Any, column: int = 0, **_: Any) -> Any:
        row = await self.fetchrow(query, *args)
        return None if row is None else row[column]


async def _write(conn: RecordedAsyncpg, append: Append) -> None:
    require_transaction(conn)
    if append.events:
        conn.recording.record(append.statement())


register(RecordedAsyncpg, Way(_write, awaits=True))
