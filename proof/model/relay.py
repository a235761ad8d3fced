"""
The relay's protocol as a generator that stops at every step, and the ways to get it wrong.

Each `yield` names the step that comes next. The simulation decides whether and when it comes: it
may let others go first, end the relay there, or take its session or the server away.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TypeAlias, TypeVar

from proof.model.kafka import Broker, Request, Wire
from proof.model.postgres import Database, Row
from relay.progress import Cursor
from relay.snapshot import Snapshot

EVENTS, PROGRESS = "events", "progress"
TRANSACTIONAL_ID = "outbox"
_BATCH = 3

T = TypeVar("T")


class Point(StrEnum):
    """The steps of the protocol."""

    LOCK = "1 take the active role"
    FENCE = "2 init_transactions"
    WATERMARK = "3 take the high watermark of the progress topic"
    PROGRESS = "4 read progress up to it"
    READ = "5 read a batch and its snapshot, in one statement"
    PRODUCE = "6 send a record"
    PRODUCE_PROGRESS = "7 send the progress record"
    COMMIT = "8 send the commit"
    AWAIT = "9 wait for the broker's answer"
    CONFIRM = "10 let the server forget what is published"
    FAILED = "11 make a new producer"
    GIVE_UP = "12 give up the active role"


Steps: TypeAlias = Generator["Point", None, T]


class Bug(StrEnum):
    """A mistake that the simulation has to find; most were somebody's."""

    PROGRESS_BEFORE_FENCE = "reads progress before it fences"
    NO_FENCE = "has transactional.ids of its own in each process"
    HALF_A_FENCE = "fences one of its two transactional.ids"
    DOES_NOT_WAIT = "begins a transaction before the one before it is committed"
    UNCOMMITTED_PROGRESS = "reads progress that was never committed"
    SHARED_PARTITION = "keeps progress in one partition with others"
    PROGRESS_AFTER = "sends progress in a transaction after that of the records"
    PROGRESS_BEFORE = "sends progress in a transaction before that of the records"
    SAME_PRODUCER = "uses the producer again after an answer that did not come"
    BELIEVES_IN_SUCCESS = "goes on from memory, as if what is in doubt was committed"
    BELIEVES_IN_FAILURE = "goes on from memory, as if what is in doubt was aborted"
    GOES_ON_WHEN_FENCED = "skips the batch that it was fenced in, and goes on"
    SEQUENCE = "takes the position for the order of commits"
    TWO_STATEMENTS = "reads the rows in one statement and the snapshot in the next"
    NEW_WINDOW = "goes on in the middle of a window that ends elsewhere"
    BEYOND_THE_NEWEST = "lets the cursor reach beyond the newest event"
    STALE_PROGRESS = "sends no progress of what it read while the transaction was open"
    CONFIRMS_FIRST = "lets the server forget a batch before the broker has committed it"
    RESUMES_WHERE_CONFIRMED = "goes on from what the server was told, and not from progress"


class World:
    """What relays share."""

    def __init__(
        self,
        gives_up: Callable[[], bool],
        reads_on: Callable[[], bool],
        bug: Bug | None = None,
    ) -> None:
        self.database, self.broker, self.bug = Database(), Broker(), bug
        self.wires: list[Wire] = []
        self.gives_up = gives_up
        """Tells whether who waits for an answer has waited long enough."""
        self.reads_on = reads_on
        """Tells whether there is time to read more before a transaction is sent."""

    @property
    def log_of_others(self) -> str:
        """Where other outboxes keep their progress: not where this one does."""
        return PROGRESS if self.bug is Bug.SHARED_PARTITION else "progress of others"


class _InDoubt(Exception):
    """The answer did not come."""


class _Fenced(Exception):
    """Another relay has taken over."""


@dataclass(slots=True)
class _Producer:
    """One of the two that publish in turn, and its way to the broker."""

    id: str
    epoch: int = 0
    wire: Wire = field(default_factory=Wire)


class Relay:
    """One relay process."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._database, self._broker = world, world.database, world.broker
        own = f"-{number}" if world.bug is Bug.NO_FENCE else ""
        self._producers = [_Producer(f"{TRANSACTIONAL_ID}{own}.{turn}") for turn in (1, 2)]
        self._session = object()
        self._cursor: Cursor | None = None
        """Where memory says that it stands; to be believed by nobody."""

    def steps(self) -> Steps[None]:
        """Stand by, be active, and again; without end."""
        while True:
            yield Point.LOCK
            if self._database.holder is not None:
                continue
            # Another session each time: the one before may have ended without its knowledge.
            self._session = object()
            self._database.holder = self._session
            try:
                yield from self._be_active()
            except _Fenced:
                yield Point.GIVE_UP
                self.end_session()

    def end_session(self) -> None:
        """Have Postgres end its session; what it does next it does not know."""
        if self._database.holder is self._session:
            self._database.holder = None

    def _be_active(self) -> Steps[None]:
        while True:
            cursor = yield from self._take_over()
            try:
                while True:
                    yield from self._confirm(cursor)
                    cursor = yield from self._publish(cursor)
            except _InDoubt:
                yield Point.FAILED

    def _confirm(self, cursor: Cursor) -> Steps[None]:
        """As rotation does with rows, and a replication slot with the log."""
        yield Point.CONFIRM
        self._database.forget(cursor)

    def _take_over(self) -> Steps[Cursor]:
        bug = self._world.bug
        if bug is Bug.PROGRESS_BEFORE_FENCE:
            cursor = yield from self._read_progress()
            yield from self._fence()
            return cursor
        if not (bug is Bug.SAME_PRODUCER and self._producers[0].epoch):
            yield from self._fence()
        if self._cursor and bug in {Bug.BELIEVES_IN_SUCCESS, Bug.BELIEVES_IN_FAILURE}:
            return self._cursor
        return (yield from self._read_progress())

    def _fence(self) -> Steps[None]:
        for producer in self._producers:
            yield Point.FENCE
            if self._world.bug is Bug.HALF_A_FENCE and producer is not self._producers[0]:
                # As if it were opened when it is first used.
                producer.epoch = 0
                continue
            self._open(producer)

    def _open(self, producer: "_Producer") -> None:
        producer.epoch = self._broker.init(producer.id)
        producer.wire = Wire()
        self._world.wires.append(producer.wire)

    def _read_progress(self) -> Steps[Cursor]:
        yield Point.WATERMARK
        end = self._broker.end(PROGRESS)
        yield Point.PROGRESS
        if self._world.bug is Bug.RESUMES_WHERE_CONFIRMED:
            return self._database.forgotten
        values: list[object] | None
        if self._world.bug is Bug.UNCOMMITTED_PROGRESS:
            values = self._broker.uncommitted(PROGRESS)
        elif self._world.bug is Bug.SHARED_PARTITION:
            values = self._broker.committed(PROGRESS)
        else:
            # Until the end that was taken: after the fence nothing of ours is open before it.
            while (values := self._broker.committed_up_to(PROGRESS, end)) is None:
                yield Point.PROGRESS
        cursors = [value for value in values if isinstance(value, Cursor)]
        return cursors[-1] if cursors else Cursor()

    def _publish(self, cursor: Cursor) -> Steps[Cursor]:
        yield Point.READ
        rows, following = yield from self._read(cursor)
        if not rows:
            return following if self._world.bug is Bug.BEYOND_THE_NEWEST else cursor
        bug = self._world.bug
        self._cursor = following if bug is Bug.BELIEVES_IN_SUCCESS else cursor
        if bug is Bug.CONFIRMS_FIRST:
            yield from self._confirm(following)
        if bug is Bug.PROGRESS_BEFORE:
            yield from self._transaction([], following)
        try:
            apart = bug in {Bug.PROGRESS_BEFORE, Bug.PROGRESS_AFTER}
            reached = yield from self._transaction(rows, None if apart else following)
            following = reached or following
            if bug is Bug.PROGRESS_AFTER:
                yield from self._transaction([], following)
        except _Fenced:
            if bug is not Bug.GOES_ON_WHEN_FENCED:
                raise
            yield from self._fence()
        return following

    def _transaction(self, batch: list[Row], progress: Cursor | None) -> Steps[Cursor | None]:
        """Publish in one transaction; return the last progress that is a part of it."""
        producer, broker = self._producers[0], self._broker
        self._producers.reverse()
        if not producer.epoch:
            self._open(producer)
        id_, epoch, wire = producer.id, producer.epoch, producer.wire
        sent: list[Request] = []
        rows = batch
        while True:
            for row in rows:
                yield Point.PRODUCE
                sent.append(wire.send(partial(broker.produce, id_, epoch, EVENTS, row)))
            if progress is None:
                break
            if self._world.bug is not Bug.STALE_PROGRESS or rows is batch:
                yield Point.PRODUCE_PROGRESS
                sent.append(wire.send(partial(broker.produce, id_, epoch, PROGRESS, progress)))
            # What has come meanwhile goes along: as often as it likes, or not at all.
            if not rows or not self._world.reads_on():
                break
            yield Point.READ
            rows, progress = yield from self._read(progress)
        # The client library commits when all records are acknowledged, and not before.
        yield from self._await(sent)
        yield Point.COMMIT
        commit = wire.send(partial(broker.commit, id_, epoch))
        if self._world.bug is not Bug.DOES_NOT_WAIT:
            yield from self._await([commit])
        return progress

    def _await(self, sent: list[Request]) -> Steps[None]:
        while not all(request.done for request in sent):
            yield Point.AWAIT
            if self._world.gives_up():
                raise _InDoubt
        if any(request.fenced for request in sent):
            raise _Fenced

    def _read(self, cursor: Cursor) -> Steps[tuple[list[Row], Cursor]]:
        database, bug = self._database, self._world.bug
        if bug is Bug.SEQUENCE:
            later = sorted(row for row in database.committed() if row.position > cursor.position)
            rows = later[:_BATCH]
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
            # A crash of the server gives ids out again, but none below one that has committed.
            until = _as_far_as(cursor.since, until, window)
        rows = rest[:_BATCH]
        if len(rest) > _BATCH:
            return rows, Cursor(cursor.since, until, rows[-1].position)
        return rows, Cursor(until)


def _as_far_as(since: Snapshot, until: Snapshot, window: list[Row]) -> Snapshot:
    """Return `until` without what lies beyond the newest event in the window."""
    newest = max((row.xid for row in window), default=0)
    return until.before(max(since.xmax, newest + 1))
