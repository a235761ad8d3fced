"""Postgres as the protocol sees it: transactions, snapshots, one advisory lock, and crashes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from relay.progress import Cursor
from relay.snapshot import Snapshot


class Row(NamedTuple):
    """One event of the table."""

    position: int
    xid: int
    key: str
    number: int


class Gone(Exception):
    """A crash of the server has ended the transaction."""


@dataclass(slots=True, eq=False)
class Running:
    """A transaction under way."""

    xid: int
    counters: dict[str, int] = field(default_factory=dict)
    """Those it holds locked, with their values for itself."""
    is_gone: bool = False


@dataclass(slots=True)
class Database:
    """One server with one outbox."""

    rows: list[Row] = field(default_factory=list)
    """Of transactions that run and of those that committed, but for what is forgotten."""
    counters: dict[str, int] = field(default_factory=dict)
    forgotten: Cursor = field(default_factory=Cursor)
    """Up to where the server has been told that all is published."""
    holder: object | None = None
    """The session that has the advisory lock."""
    _next_xid: int = 10
    _next_position: int = 1
    _running: list[Running] = field(default_factory=list)
    _committed: set[int] = field(default_factory=set)

    def begin(self) -> Running:
        running = Running(self._next_xid)
        self._next_xid += 1
        self._running.append(running)
        return running

    def is_locked(self, key: str, for_whom: Running) -> bool:
        """Tell whether another transaction holds the lock of `key`."""
        return any(key in other.counters for other in self._running if other is not for_whom)

    def append(self, running: Running, key: str) -> None:
        """
        Write the next event of `key`, under its lock.

        Raises:
            Gone: a crash has ended the transaction.
        """
        _require_alive(running)
        number = running.counters.get(key, self.counters.get(key, 0))
        running.counters[key] = number + 1
        self.rows.append(Row(self._next_position, running.xid, key, number))
        self._next_position += 1

    def commit(self, running: Running) -> None:
        """
        Commit.

        Raises:
            Gone: a crash has ended the transaction.
        """
        _require_alive(running)
        self.counters |= running.counters
        self._running.remove(running)
        self._committed.add(running.xid)

    def roll_back(self, running: Running) -> None:
        """
        Undo the transaction.

        Raises:
            Gone: a crash has done it.
        """
        _require_alive(running)
        self._running.remove(running)
        self._forget([running])

    def crash(self) -> None:
        """
        End every session, and give out again the ids that no commit has brought to the disk.

        What rolled back or ran leaves no trace: the next to come get its numbers.
        """
        self._forget(self._running)
        for each in self._running:
            each.is_gone = True
        self._running.clear()
        self.holder = None
        self._next_xid = max(self._committed, default=9) + 1

    def snapshot(self) -> Snapshot:
        """Return what `pg_current_snapshot()` says."""
        running = tuple(sorted(each.xid for each in self._running))
        return Snapshot(min(running, default=self._next_xid), self._next_xid, running)

    def committed(self) -> list[Row]:
        return [row for row in self.rows if row.xid in self._committed]

    def between(self, since: Snapshot, until: Snapshot) -> list[Row]:
        """Return committed events that `until` sees and `since` does not, by position."""
        found = (row for row in self.committed() if until.sees(row.xid))
        return sorted(row for row in found if not since.sees(row.xid))

    def forget(self, published: Cursor) -> None:
        """Make room: what lies behind `published` need not be there any more."""
        self.forgotten = published
        self.rows = [row for row in self.rows if not _is_behind(row, published)]

    def _forget(self, transactions: Iterable[Running]) -> None:
        gone = {each.xid for each in transactions}
        self.rows = [row for row in self.rows if row.xid not in gone]


def _is_behind(row: Row, published: Cursor) -> bool:
    if published.since.sees(row.xid):
        return True
    until = published.until
    return until is not None and until.sees(row.xid) and row.position <= published.position


def _require_alive(running: Running) -> None:
    if running.is_gone:
        raise Gone
