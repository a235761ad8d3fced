"""
The common part of relays and operators' commands, as generators that stop at every step.

Each `yield` names the next step. The simulation decides whether and when it comes: it may let
others go first, end the process there, or take its sessions or a server away.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from proof.model.kafka import Request, Wire
from proof.model.postgres import Claim, Gone, Overtaken, Session
from proof.model.world import (
    NOTHING,
    PROGRESS,
    PUT_BACK,
    TRANSACTIONAL_ID,
    Bug,
    InDoubt,
    Mark,
    Point,
    Progress,
    Refused,
    ShutOut,
    Steps,
    World,
    misfit,
)
from relay.rules.places.progress import Cursor

_GIVES_UP = 0.06


@dataclass(slots=True)
class Producer:
    """One of the two producers that publish in turn, and its connection to the broker."""

    id: str
    epoch: int = 0
    wire: Wire = field(default_factory=Wire)


class Party:
    """A process with the active role, or on its way there."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._broker = world, world.broker
        own = f"-{number}" if world.bug is Bug.NO_FENCE else ""
        self._producers = [Producer(f"{TRANSACTIONAL_ID}{own}.{turn}") for turn in (1, 2)]
        self._role, self._reading = Session(world.database, is_over=True), Session(world.database)
        self._term = self._carried = 0
        """The nonce in Kafka's progress."""
        self._next: tuple[int, int] | None = None
        """The next nonce, and where the log with its commit ends."""

    def end_role(self) -> None:
        """Let Postgres end the session with the role; the process does not notice."""
        self._role.server.end(self._role)

    def end(self) -> None:
        """Let Postgres end both of its sessions, and use its producers no more."""
        self.end_role()
        self._reading.server.end(self._reading)
        for producer in self._producers:
            producer.epoch = 0

    def hold_back(self, until: int) -> None:
        """Let nothing that it has sent arrive before a moment."""
        for producer in self._producers:
            producer.wire.held_until = until

    def _lock(self) -> bool:
        """Ask for the active role in a new session; return whether we got it."""
        server = self._world.server()
        if server.holder is not None:
            return False
        self._role = server.holder = server.connect()
        return True

    def _connect(self) -> Steps[None]:
        yield Point.CONNECT
        self._reading.server.end(self._reading)
        self._reading = self._world.server().connect()

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        """
        Yield the session with the role, for writing; it must be at the server that we read from.
        """
        apart = self._role.server is not self._reading.server
        if apart and self._world.bug is not Bug.SPLIT_SERVER:
            raise ShutOut
        try:
            yield self._role
        except (Gone, Overtaken) as error:
            raise ShutOut from error

    # Fence, and read progress.

    def _fence(self) -> Steps[Mark]:
        """Fence earlier holders of the role; return the mark to be found when progress is read."""
        bug = self._world.bug
        for producer in self._producers:
            yield Point.FENCE
            if bug is Bug.HALF_A_FENCE and producer is not self._producers[0]:
                # As if the producer were opened at its first use.
                producer.epoch = 0
                continue
            self._open(producer)
        return (yield from self._mark())

    def _open(self, producer: Producer) -> None:
        producer.epoch = self._broker.init(producer.id)
        self._rewire(producer)

    def _rewire(self, producer: Producer) -> None:
        """Give it a new connection; requests on the old one arrive all the same."""
        old = producer.wire
        wires, producer.wire = self._world.wires, Wire()
        wires[:] = [each for each in wires if each.queue or each is not old]
        wires.append(producer.wire)

    def _mark(self) -> Steps[Mark]:
        """
        Commit a record; a log that has it has everything that was committed before the fence.
        """
        mark = Mark(next(self._world.numbers))
        producer = self._producers[0]
        yield Point.MARK
        yield from self._commit(producer, [self._send(producer, PROGRESS, mark)])
        return mark

    def _read_progress(self, mark: Mark) -> Steps[Progress]:
        world, bug = self._world, self._world.bug
        while True:
            yield Point.PROGRESS
            by_old = world.by_old_leader()
            values = self._broker.committed(PROGRESS, by_old_leader=by_old)
            if bug is Bug.UNCOMMITTED_PROGRESS:
                values = self._broker.uncommitted(PROGRESS)
            is_found = mark in values
            if bug is Bug.STALE_READ:
                is_found = not self._broker.is_open(PROGRESS, by_old_leader=by_old)
            if is_found:
                return newest(values, last=bug is Bug.LAST_COUNTS)
            if world.happens(_GIVES_UP):
                raise InDoubt

    def _peek(self) -> Steps[Progress]:
        """Read progress from whichever broker answers."""
        yield Point.PEEK
        early = self._world.bug is Bug.PROGRESS_BEFORE_FENCE
        by_old = not early and self._world.by_old_leader()
        return newest(self._broker.committed(PROGRESS, by_old_leader=by_old))

    # Compare progress with the database.

    def _claim(self, progress: Progress) -> Steps[None]:
        """Check that progress was made from this database, and begin a term."""
        yield Point.CLAIM
        known = self._known()
        if self._world.bug is Bug.RENEWS_FIRST:
            yield Point.RENEW
            self._renew(known, progress.nonce, progress.term)
        self._hold_against(progress)
        if self._world.bug is not Bug.RENEWS_FIRST:
            yield Point.RENEW
            self._renew(known, progress.nonce, progress.term)

    def _hold_against(self, progress: Progress) -> None:
        world, server = self._world, self._reading.server
        reason = misfit(progress, server)
        if reason is None or (reason == PUT_BACK and world.bug is Bug.NUMBERS_ALONE):
            return
        # Another holder of the role may have moved both meanwhile, one after the other.
        if self._role.is_over:
            raise ShutOut
        is_false = reason == PUT_BACK and progress.put_back == server.put_back
        world.false_refusals += is_false
        raise Refused

    def _known(self) -> Claim:
        if self._reading.is_over:
            raise InDoubt
        return self._reading.server.claim

    def _renew(self, known: Claim, carried: int, beyond: int) -> None:
        """
        Write a new nonce into the database, which also keeps the one that progress carries.

        The new term is the one after `beyond`.
        """
        bug, nonce = self._world.bug, next(self._world.numbers)
        kept = known.nonce if bug is Bug.FORGETS_CARRIED else carried
        with self._writing() as role:
            server = role.server
            session = server.connect() if bug is Bug.OTHER_SESSION else role
            self._term = max(known.term, beyond + 1)
            server.renew(session, known, Claim(self._term, nonce, kept))
            self._carried, self._next = carried, (nonce, server.lsn)

    def _nonce(self, lsn: int) -> int:
        """Return the nonce for progress up to `lsn`: a server that has that much has the nonce."""
        if self._next is None:
            return self._carried
        nonce, needs = self._next
        early = self._world.bug is Bug.NONCE_TOO_EARLY
        return nonce if lsn >= needs or early or not self._carried else self._carried

    def _rotate(self) -> None:
        """
        Write a new nonce like the active relay does now and then, once progress has the last one.
        """
        known = self._known()
        if self._world.bug is not Bug.FORGETS_CARRIED:
            if self._next is not None:
                return
            if known.nonce != self._carried:
                raise ShutOut
        self._renew(known, self._carried, known.term - 1)

    # Publish.

    def _progress(self, cursor: Cursor, lsn: int, given_up: frozenset[int]) -> Progress:
        server = self._reading.server
        nonce = self._nonce(lsn)
        return Progress(cursor, self._term, nonce, lsn, server.timeline, given_up, server.put_back)

    def _published(self, progress: Progress) -> None:
        if self._next is not None and progress.nonce == self._next[0]:
            self._carried, self._next = progress.nonce, None

    def _next_producer(self) -> Producer:
        producer = self._producers[0]
        self._producers.reverse()
        if not producer.epoch:
            self._open(producer)
        return producer

    def _send(self, producer: Producer, log: str, value: object) -> Request:
        produce = partial(self._broker.produce, producer.id, producer.epoch, log, value)
        return producer.wire.send(produce)

    def _commit(self, producer: Producer, sent: Sequence[Request]) -> Steps[None]:
        # The client library commits only when all records are acknowledged.
        yield from self._await(sent)
        yield Point.COMMIT
        commit = producer.wire.send(partial(self._broker.commit, producer.id, producer.epoch))
        if self._world.bug is not Bug.DOES_NOT_WAIT:
            yield from self._await([commit])

    def _await(self, sent: Sequence[Request]) -> Steps[None]:
        while not all(request.done for request in sent):
            yield Point.AWAIT
            if self._world.happens(_GIVES_UP):
                raise InDoubt
        if any(request.fenced for request in sent):
            raise ShutOut


def newest(values: Sequence[object], *, last: bool = False) -> Progress:
    """Return the progress of the highest term among its topic's records, or the `last` one."""
    found = [each for each in values if isinstance(each, Progress)]
    if last:
        return found[-1] if found else NOTHING
    return max(reversed(found), key=attrgetter("term"), default=NOTHING)
