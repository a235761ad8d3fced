"""
When a relay may leave the log for the table, and which events are published by then.

Writers now write to the table, but some that began earlier do not know of it yet. Once all of
those have ended, the log gets nothing but rows, and the table has them all. From then on a
snapshot of the table and a position in the log mean the same events, except for events that came
while the two were taken. Their transactions are gathered one by one.
"""

from relay.rules.places.progress import Cursor, LogPosition
from relay.rules.places.snapshot import Snapshot


class Departure:
    """One way out of the log, used by the thread that reads it."""

    def __init__(self, asked: str) -> None:
        self.asked = asked
        """The wish to leave that this follows, by the database's name for it."""
        self.rows_of: set[int] = set()
        """
        Transactions whose rows came from the log since before the first look, and which no look
        has seen yet.
        """
        self._running: frozenset[str] | None = None
        self._prepared: frozenset[str] | None = None
        self._seen: Snapshot | None = None
        self._end = 0

    @property
    def is_free(self) -> bool:
        """Return whether nobody writes to the log any more."""
        return self._running == frozenset() and self._prepared == frozenset()

    @property
    def is_marked(self) -> bool:
        """Return whether the place up to which the log must be read is known."""
        return self._seen is not None

    def look(self, snapshot: Snapshot, running: frozenset[str], prepared: frozenset[str]) -> None:
        """
        Take in the database's lists: first of running transactions, then of prepared ones.

        The order matters: a transaction that is prepared in between is in the second list.
        """
        if self._running is None:
            self._running = running
        self._running &= running
        if not self._running:
            self._prepared = prepared if self._prepared is None else self._prepared & prepared
        if self._seen is None:
            self.rows_of -= {xid for xid in self.rows_of if snapshot.sees(xid)}

    def mark(self, seen: Snapshot, end: int) -> None:
        """Take in a snapshot taken after all this, and the end of the log after it."""
        self._seen, self._end = seen, end

    def place(self, position: LogPosition, now: Snapshot) -> Cursor | None:
        """
        Return where the table goes on after `position`; None while the log must be read further.
        """
        if self._seen is None or position.index or position.lsn < self._end:
            return None
        published = self._seen.adding(self.rows_of)
        # A commit that waits for a standby is in the log while its rows are still invisible.
        return Cursor(published, log=position.lsn) if now.covers(published) else None
