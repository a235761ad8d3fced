"""
Postgres as the protocol sees it: transactions, snapshots, sessions, one advisory lock, crashes.

A standby can be promoted while the old primary goes on unaware, and a server can be restored from
a copy.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from relay.rules.places.progress import Cursor
from relay.rules.places.snapshot import Snapshot


class Row(NamedTuple):
    """One event of the table."""

    position: int
    xid: int
    key: str
    id: int
    """Counts the events written in a world; no server reuses it."""


class Claim(NamedTuple):
    """The database's record to compare with progress."""

    term: int = 0
    nonce: int = 0
    previous: int = 0


class Gone(Exception):
    """The server has ended the transaction, or the session."""


class Overtaken(Exception):
    """The claim has changed since it was read."""


@dataclass(slots=True, eq=False)
class Running:
    """A transaction in progress."""

    xid: int
    keys: set[str] = field(default_factory=set)
    """The keys that it holds locked."""
    is_gone: bool = False


@dataclass(slots=True, eq=False)
class Session:
    """A connection to one server, which stays with that server whatever happens to it."""

    server: "Database"
    is_over: bool = False

    def require(self) -> None:
        """
        Check that the server has not ended it.

        Raises:
            Gone: it has.
        """
        if self.is_over:
            raise Gone


@dataclass(slots=True, eq=False)
class Database:
    """One server with one outbox."""

    ids: Iterator[int] = field(default_factory=count)
    rows: list[Row] = field(default_factory=list)
    """The rows of running and committed transactions, without what is forgotten."""
    past: list[Row] = field(default_factory=list)
    """The forgotten rows."""
    parked: set[int] = field(default_factory=set)
    claim: Claim = field(default_factory=Claim)
    forgotten: Cursor = field(default_factory=Cursor)
    """How far the server has been told that everything is published."""
    lsn: int = 1
    """The end of the write-ahead log."""
    timeline: int = 1
    left_at: dict[int, int] = field(default_factory=dict)
    """Where the log of each earlier timeline ends on this server."""
    put_back: int = 0
    """How often the server was restored; no server knows that about itself."""
    holder: Session | None = None
    """The session that has the advisory lock."""
    _next_xid: int = 10
    _next_position: int = 1
    _running: list[Running] = field(default_factory=list)
    _committed: set[int] = field(default_factory=set)
    _sessions: list[Session] = field(default_factory=list)

    def connect(self) -> Session:
        session = Session(self)
        self._sessions.append(session)
        return session

    def end(self, session: Session) -> None:
        """End a session, and release what it holds."""
        session.is_over = True
        if self.holder is session:
            self.holder = None

    def begin(self) -> Running:
        running = Running(self._next_xid)
        self._next_xid += 1
        self._running.append(running)
        return running

    def is_locked(self, key: str, for_whom: Running) -> bool:
        """Return whether another transaction holds the lock of `key`."""
        return any(key in other.keys for other in self._running if other is not for_whom)

    def append(self, running: Running, key: str) -> None:
        """
        Write the next event of `key`, under its lock.

        Raises:
            Gone: a crash has ended the transaction.
        """
        _require_alive(running)
        running.keys.add(key)
        self.rows.append(Row(self._next_position, running.xid, key, next(self.ids)))
        self._next_position += 1

    def commit(self, running: Running) -> None:
        """
        Commit the transaction.

        Raises:
            Gone: a crash has ended the transaction.
        """
        _require_alive(running)
        self._running.remove(running)
        self._committed.add(running.xid)
        self.lsn += 1

    def roll_back(self, running: Running) -> None:
        """
        Undo the transaction.

        Raises:
            Gone: a crash has done so already.
        """
        _require_alive(running)
        self._running.remove(running)
        self._forget([running])

    def park(self, session: Session, row: Row) -> None:
        """
        Set an event aside, in a transaction of its own.

        Raises:
            Gone: the session has ended.
        """
        session.require()
        self.parked.add(row.id)
        self.lsn += 1

    def renew(self, session: Session, known: Claim, new: Claim) -> None:
        """
        Write a `new` claim if it is still as `known`, in a transaction of its own.

        Raises:
            Gone: the session has ended.
            Overtaken: the claim has changed.
        """
        session.require()
        if self.claim != known:
            raise Overtaken
        self.claim = new
        self.lsn += 1

    def begin_term(self, session: Session, beyond: int) -> int:
        """
        Begin a term after all earlier ones, in a transaction of its own.

        Raises:
            Gone: the session has ended.
        """
        session.require()
        self.claim = self.claim._replace(term=max(self.claim.term, beyond) + 1)
        self.lsn += 1
        return self.claim.term

    def crash(self) -> None:
        """
        End every session, and reuse the transaction ids that no commit has brought to disk.

        Transactions that rolled back or were running leave no trace: the next ones get their ids.
        """
        self._forget(self._running)
        self.shut_down()
        self._next_xid = max(self._committed, default=9) + 1

    def shut_down(self) -> None:
        """End every transaction and session."""
        self.abandon()
        for session in self._sessions:
            session.is_over = True
        self._sessions.clear()
        self.holder = None

    def abandon(self) -> None:
        """End every transaction: writers connect to another server."""
        for running in self._running:
            running.is_gone = True
        self._running.clear()

    def copy(self) -> "Database":
        """Return the server that would start from the present files."""
        left = {running.xid for running in self._running}
        copy = replace(
            self,
            rows=[row for row in self.rows if row.xid not in left],
            past=list(self.past),
            parked=set(self.parked),
            left_at=dict(self.left_at),
            holder=None,
            _running=[],
            _committed=set(self._committed),
            _sessions=[],
        )
        copy.crash()
        return copy

    def promoted(self, old: "Database") -> None:
        """Become the primary in place of `old`, whose standby this was."""
        self.left_at[old.timeline] = self.lsn
        self.timeline = old.timeline + 1

    def snapshot(self) -> Snapshot:
        """Return the value of `pg_current_snapshot()`."""
        running = tuple(sorted(each.xid for each in self._running))
        return Snapshot(min(running, default=self._next_xid), self._next_xid, running)

    def committed(self) -> list[Row]:
        return [row for row in self.rows if row.xid in self._committed]

    def between(self, since: Snapshot, until: Snapshot) -> list[Row]:
        """Return committed events that `until` sees and `since` does not, by position."""
        found = (row for row in self.committed() if until.sees(row.xid))
        return sorted(row for row in found if not since.sees(row.xid))

    def forget(self, published: Cursor) -> None:
        """Make room: rows up to `published` may be deleted."""
        self.forgotten = published
        self.past += [row for row in self.rows if _is_behind(row, published)]
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
