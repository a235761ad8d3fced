"""The relay's protocol, step by step, with the ways to get it wrong."""

from proof.model.party import Party
from proof.model.postgres import Row
from proof.model.world import (
    EVENTS,
    PROGRESS,
    Bug,
    InDoubt,
    Point,
    Progress,
    Refused,
    ShutOut,
    Steps,
)
from relay.rules.places.progress import Cursor
from relay.rules.places.snapshot import Snapshot

BATCH = 3
_READS_ON, _ROTATES = 0.4, 0.3


class Relay(Party):
    """One relay process, and the supervisor that starts it again."""

    _last: Progress | None = None
    """The relay's progress from memory, which it must not believe."""
    _lsn = 0
    """The end of the log at the last read."""

    def steps(self) -> Steps[None]:
        """Stand by, be active, and again, without end."""
        while True:
            yield Point.LOCK
            if not self._lock():
                continue
            try:
                yield from self._be_active()
            except ShutOut:
                pass
            except Refused:
                self._world.is_refused = True
            yield Point.GIVE_UP
            self.end()

    def _be_active(self) -> Steps[None]:
        while True:
            try:
                progress = yield from self._take_over()
                while True:
                    yield from self._confirm(progress.cursor)
                    progress = yield from self._publish(progress)
            except InDoubt:
                yield Point.FAILED

    def _confirm(self, cursor: Cursor) -> Steps[None]:
        """
        Let the server forget, as rotation does with rows, and a replication slot with the log.
        """
        yield Point.CONFIRM
        if self._reading.is_over:
            raise InDoubt
        self._reading.server.forget(cursor)

    def _take_over(self) -> Steps[Progress]:
        bug = self._world.bug
        yield from self._connect()
        if bug is Bug.PROGRESS_BEFORE_FENCE:
            progress = yield from self._peek()
            yield from self._fence()
        elif self._last and bug in {Bug.BELIEVES_IN_SUCCESS, Bug.BELIEVES_IN_FAILURE}:
            yield from self._fence()
            progress = self._last
        elif bug is Bug.SAME_PRODUCER and self._producers[0].epoch:
            progress = yield from self._read_progress((yield from self._mark()))
        else:
            progress = yield from self._read_progress((yield from self._fence()))
        if bug is Bug.RESUMES_WHERE_CONFIRMED:
            progress = progress._replace(cursor=self._reading.server.forgotten)
        yield from self._claim(progress)
        return progress

    def _publish(self, progress: Progress) -> Steps[Progress]:
        yield Point.READ
        rows, cursor = yield from self._read(progress.cursor)
        bug = self._world.bug
        if not rows:
            if bug is Bug.BEYOND_THE_NEWEST:
                return progress._replace(cursor=cursor)
            if self._nonce(self._lsn) == self._carried:
                return progress
            cursor = progress.cursor
        if bug is Bug.CONFIRMS_FIRST:
            yield from self._confirm(cursor)
        if bug is Bug.PROGRESS_BEFORE:
            yield from self._transaction([], cursor)
        try:
            apart = bug in {Bug.PROGRESS_BEFORE, Bug.PROGRESS_AFTER}
            reached = yield from self._transaction(rows, None if apart else cursor)
            if bug is Bug.PROGRESS_AFTER:
                reached = yield from self._transaction([], cursor)
        except ShutOut:
            if bug is not Bug.GOES_ON_WHEN_FENCED:
                raise
            yield from self._fence()
            reached = None
        return reached or progress._replace(cursor=cursor)

    def _transaction(self, batch: list[Row], cursor: Cursor | None) -> Steps[Progress | None]:
        """Publish in one transaction; return the last progress that is a part of it."""
        world, bug = self._world, self._world.bug
        producer = self._next_producer()
        sent, rows, progress = [], batch, None
        while True:
            for row in rows:
                if is_poison(row):
                    yield Point.PARK
                    with self._writing() as role:
                        role.server.park(role, row)
                        self._lsn = role.server.lsn
                else:
                    yield Point.PRODUCE
                    sent.append(self._send(producer, EVENTS, row))
            if world.happens(_ROTATES):
                # Another thread does this while the batch is on its way.
                yield Point.RENEW
                self._rotate()
            if cursor is None:
                break
            if bug is not Bug.STALE_PROGRESS or rows is batch:
                yield Point.PRODUCE_PROGRESS
                progress = self._progress(cursor, self._lsn, frozenset())
                sent.append(self._send(producer, PROGRESS, progress))
            # Events that have come meanwhile join the batch, any number of times or not at all.
            if not rows or not world.happens(_READS_ON):
                break
            yield Point.READ
            rows, cursor = yield from self._read(cursor)
        if progress:
            self._last = progress if bug is Bug.BELIEVES_IN_SUCCESS else self._last
        yield from self._commit(producer, sent)
        if progress:
            self._published(progress)
            self._last = progress
        return progress

    def _read(self, cursor: Cursor) -> Steps[tuple[list[Row], Cursor]]:
        if self._reading.is_over:
            raise InDoubt
        database, bug = self._reading.server, self._world.bug
        self._lsn = database.lsn
        if bug is Bug.SEQUENCE:
            later = sorted(row for row in database.committed() if row.position > cursor.position)
            rows = later[:BATCH]
            last = rows[-1].position if rows else cursor.position
            return rows, Cursor(cursor.since, None, last)
        until = cursor.until or database.snapshot()
        if bug is Bug.NEW_WINDOW:
            until = database.snapshot()
        window = database.between(cursor.since, until)
        if bug is Bug.TWO_STATEMENTS and cursor.until is None:
            yield Point.READ
            until = database.snapshot()
        rest = [row for row in window if row.position > cursor.position]
        if cursor.until is None and bug is not Bug.BEYOND_THE_NEWEST:
            # A crash makes the server reuse ids, but none below one that has committed.
            until = as_far_as(cursor.since, until, window)
        rows = rest[:BATCH]
        if len(rest) > BATCH:
            return rows, Cursor(cursor.since, until, rows[-1].position)
        return rows, Cursor(until)


def is_poison(row: Row) -> bool:
    """Return whether the broker can never take an event."""
    return row.id % 7 == 3  # noqa: PLR2004  # some


def as_far_as(since: Snapshot, until: Snapshot, window: list[Row]) -> Snapshot:
    """Return `until` without what lies beyond the newest event in the window."""
    newest = max((row.xid for row in window), default=0)
    return until.before(max(since.xmax, newest + 1))
