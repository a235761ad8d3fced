"""
When the log may be left for the table, and which events are published by then.

Writers write to the table, but some that began before do not know of it. Once all of these have
ended, nothing but rows comes in the log, and the table has them all: a snapshot of the table and a
position in the log then mean the same events, but for those that came while both were taken, whose
transactions are gathered one by one.
"""

from relay.rules.places.progress import Cursor, LogPosition
from relay.rules.places.snapshot import Snapshot


class Departure:
    """One way out of the log, looked after by the thread that reads it."""

    def __init__(self, asked: str) -> None:
        self.asked = asked
        """Which wish to leave this follows, as the database names it."""
        self.rows_of: set[int] = set()
        """Transactions of which rows came from the log, gathered from before the first look on,
        as far as no look has seen them."""
        self._running: frozenset[str] | None = None
        self._prepared: frozenset[str] | None = None
        self._seen: Snapshot | None = None
        self._end = 0

    @property
    def is_free(self) -> bool:
        """Tell whether nobody writes to the log any more."""
        return self._running == frozenset() and self._prepared == frozenset()

    @property
    def is_marked(self) -> bool:
        """Tell whether it is known how far the log is still to be read."""
        return self._seen is not None

    def look(self, snapshot: Snapshot, running: frozenset[str], prepared: frozenset[str]) -> None:
        """
        Learn what the database says: transactions that run, then those that are prepared.

        In this order: one that is prepared in between is in the second list.
        """
        if self._running is None:
            self._running = running
        self._running &= running
        if not self._running:
            self._prepared = prepared if self._prepared is None else self._prepared & prepared
        if self._seen is None:
            self.rows_of -= {xid for xid in self.rows_of if snapshot.sees(xid)}

    def mark(self, seen: Snapshot, end: int) -> None:
        """Learn a snapshot taken after all this, and where the log ended behind it."""
        self._seen, self._end = seen, end

    def place(self, position: LogPosition, now: Snapshot) -> Cursor | None:
        """Return where the table goes on behind `position`, or None while the log has to."""
        if self._seen is None or position.index or position.lsn < self._end:
            return None
        published = self._seen.adding(self.rows_of)
        # A commit that waits for a standby is in the log, and nobody sees its rows yet.
        return Cursor(published, log=position.lsn) if now.covers(published) else None
