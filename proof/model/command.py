"""Operators' commands, which take the role like a relay, write progress, and end."""

from contextlib import suppress

from proof.model.party import Party
from proof.model.postgres import Row
from proof.model.relay import as_far_as
from proof.model.world import (
    EVENTS,
    PROGRESS,
    Bug,
    InDoubt,
    Point,
    Refused,
    ShutOut,
    Steps,
    misfit,
)
from relay.rules.places.progress import Cursor
from relay.rules.places.snapshot import BEGINNING


class Command(Party):
    """A command until it ends, well or not; an operator runs it again if necessary."""

    def steps(self) -> Steps[None]:
        yield Point.LOCK
        while not self._lock():
            yield Point.LOCK
        with suppress(ShutOut, InDoubt, Refused):
            yield from self._act()
        yield Point.GIVE_UP
        self.end()

    def _act(self) -> Steps[None]:
        raise NotImplementedError

    def _write(self, cursor: Cursor, given_up: frozenset[int] = frozenset()) -> Steps[None]:
        """Write progress, with the producer that has fenced."""
        producer = self._next_producer()
        yield Point.PRODUCE_PROGRESS
        progress = self._progress(cursor, self._reading.server.lsn, given_up)
        yield from self._commit(producer, [self._send(producer, PROGRESS, progress)])


class Reshard(Command):
    """Decides by what it reads before it fences, and writes that anew."""

    def _act(self) -> Steps[None]:
        yield from self._connect()
        believed = yield from self._peek()
        mark = yield from self._fence()
        if self._world.bug is Bug.LATE_COMMAND:
            progress = believed
        else:
            progress = yield from self._read_progress(mark)
        if progress.cursor != believed.cursor:
            return
        yield from self._claim(progress)
        yield from self._write(believed.cursor)


class Accept(Command):
    """
    Goes on from the state of a server that was restored, or promoted without all that it needs.
    """

    def _act(self) -> Steps[None]:
        world = self._world
        yield from self._connect()
        progress = yield from self._read_progress((yield from self._fence()))
        yield Point.CLAIM
        known, server = self._known(), self._reading.server
        if misfit(progress, server) is None:
            world.is_refused = False
            return
        # Kafka's events are recognised by their ids.
        until = server.snapshot()
        window = server.between(BEGINNING, until)
        published = {row.id for row in world.broker.committed(EVENTS) if isinstance(row, Row)}
        given_up = frozenset(row.id for row in window) - published - server.parked
        yield Point.RENEW
        # If the old nonce were kept, progress would fit before it has been moved.
        kept = progress.nonce if world.bug is Bug.ACCEPTED_EARLY else known.nonce
        self._renew(known, kept, progress.term)
        self._carried = 0
        yield from self._write(Cursor(as_far_as(BEGINNING, until, window)), given_up)
        world.is_refused = False
        world.accepted += 1
