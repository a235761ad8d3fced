"""
Route each event of a producer: to Kafka directly, or through the outbox.

This module only decides: it has no clock, no Kafka, no Postgres. Events are numbers, in the order
in which they were offered. A *lane* is a key of a topic, whose events keep their order. Once an
event of a lane has gone into the outbox, the later ones follow it there. They do so until the
outbox reports that the lane's *token* (the transaction that wrote its last event) has drained.

A lane that is busier than these reports would never return. So once an earlier token has drained,
the lane *holds* its next events for a moment, and sends them neither way until the last one has
drained as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

Lane: TypeAlias = bytes
EVERY: Lane = b""
"""Stands for all lanes, when they are too many to be known one by one, or not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteLimits:
    """Limits on what is remembered and asked, and on how long a lane holds its events."""

    lanes: int = 10_000
    """Most lanes that are known one by one; beyond that, all go through the outbox."""

    questions: int = 1_000
    """Most lanes in one question to the outbox."""

    hold: float = 3.0
    """Seconds for which a lane holds its events; then they go into the outbox after all."""

    rest: float = 1.0
    """Seconds before the lane tries again; each failure doubles them."""

    longest_rest: float = 60.0


@dataclass(slots=True, kw_only=True)
class _Road:
    """A lane on its way through the outbox."""

    token: int | None = None
    """The newest transaction that wrote an event of the lane; None: no event is written yet."""
    asked: int | None = None
    """The transaction that is asked about until it has drained; perhaps an older one."""
    waiting: int = 0
    """Events of the lane that are still to be written."""
    held: list[int] = field(default_factory=list)
    held_since: float | None = None
    holds_from: float = 0.0
    rest: float = 0.0


class Routing:
    """The unaccepted events of one producer, and their lanes."""

    def __init__(self, limits: RouteLimits | None = None, *, fresh: bool = False) -> None:
        """
        Begin without a broker.

        Unless `fresh`, an earlier producer of these lanes may have left events in the outbox: they
        go first.
        """
        self._limits = limits or RouteLimits()
        self.is_up = False
        """Events may be sent to Kafka."""
        self._lane_of: dict[int, Lane | None] = {}
        self._direct: dict[int, None] = {}
        self._queue: list[int] = []
        self._writing: list[int] = []
        self._roads: dict[Lane, _Road] = {} if fresh else {EVERY: _Road()}

    def offer(self, number: int, lane: Lane | None) -> bool:
        """
        Take an event, and return whether it is to be sent to Kafka now.

        Numbers rise. An event without a lane has no order.
        """
        self._lane_of[number] = lane
        if not self.is_up:
            self._enqueue(number)
            return False
        road = self._road(lane)
        if road is None:
            self._direct[number] = None
            return True
        if road.held_since is None:
            self._enqueue(number)
        else:
            road.held.append(number)
        return False

    def acknowledged(self, numbers: Iterable[int]) -> list[int]:
        """Record that the broker has these, and return those that it has thereby accepted."""
        accepted = [number for number in numbers if number in self._direct]
        for number in accepted:
            del self._direct[number], self._lane_of[number]
        return accepted

    def broken(self) -> None:
        """
        Record that an event failed or may have failed, and that the Kafka producer is gone.

        Events that it has not acknowledged go into the outbox in the order in which they were
        sent.
        """
        self.is_up = False
        unsure = list(self._direct)
        self._direct.clear()
        for number in unsure:
            self._enqueue(number)
        for road in list(self._roads.values()):
            self._release(road)

    def restored(self) -> None:
        """Record that there is a Kafka producer again."""
        self.is_up = True

    @property
    def unsure(self) -> int | None:
        """The oldest event that was sent and is not acknowledged."""
        return next(iter(self._direct), None)

    @property
    def backlog(self) -> int:
        """Number of events that are still to be written into the outbox."""
        return len(self._queue)

    @property
    def lanes(self) -> int:
        """Number of lanes that go through the outbox; `EVERY` counts as one."""
        return len(self._roads)

    def write(self, most: int | None = None) -> Sequence[int]:
        """
        Return the events to write now, at most `most`, in this order, in one transaction.
        """
        if self._writing:
            msg = "one transaction after the other"
            raise AssertionError(msg)
        most = len(self._queue) if most is None else most
        self._writing, self._queue = self._queue[:most], self._queue[most:]
        return self._writing

    def written(self, token: int) -> Sequence[int]:
        """Record the commit of transaction `token`, and return the events that it has accepted."""
        done, self._writing = self._writing, []
        for number in done:
            road = self._road(self._lane_of.pop(number))
            if road is not None:
                road.token, road.waiting = token, road.waiting - 1
        return done

    def not_written(self, given_up: Iterable[int]) -> None:
        """Record that perhaps nothing was written; do not try `given_up` again."""
        refused = set(given_up)
        self._queue[:0] = [number for number in self._writing if number not in refused]
        self._writing = []
        for number in refused:
            lane = self._lane_of.pop(number)
            road = self._road(lane)
            if lane is not None and road is not None:
                road.waiting -= 1
                self._forget(lane, road)

    @property
    def needs_token(self) -> bool:
        """Return whether an empty transaction is needed to name the events that have to drain."""
        road = self._roads.get(EVERY)
        return road is not None and road.token is None and not road.waiting

    def began(self, token: int) -> None:
        """Record such a transaction, committed just now."""
        if self.needs_token:
            self._roads[EVERY].token = token

    def questions(self) -> dict[Lane, int]:
        """Return the tokens to ask about; the ones that have waited longest come first."""
        asked: dict[Lane, int] = {}
        written = ((lane, road) for lane, road in self._roads.items() if road.token is not None)
        for lane, road in islice(written, self._limits.questions):
            # Do not ask about the newest: if events come faster than answers, it would never have
            # drained.
            road.asked = asked[lane] = road.asked or road.token or 0
        return asked

    def answered(
        self,
        asked: Mapping[Lane, int],
        drained: Iterable[Lane],
        now: float,
        parked: Sequence[Lane],
    ) -> Sequence[int]:
        """
        Record which of the lanes asked about have drained; return the events to send to Kafka now.

        If `EVERY` was asked about, `parked` holds the lanes with a parked event.
        """
        free = set(drained)
        released: list[int] = []
        for lane, token in asked.items():
            road = self._roads.get(lane)
            if road is None:
                continue
            if lane not in free:
                self._roads[lane] = self._roads.pop(lane)
                continue
            road.asked = None
            if road.token == token and not road.waiting:
                released += self._leave(lane, token, parked)
            elif self.is_up and road.held_since is None and now >= road.holds_from:
                road.held_since = now
        return released

    def overdue(self, now: float) -> None:
        """Stop holding the lanes that have held for too long."""
        for road in list(self._roads.values()):
            if road.held_since is not None and now - road.held_since >= self._limits.hold:
                self._release(road)
                road.rest = min(max(self._limits.rest, road.rest * 2), self._limits.longest_rest)
                road.holds_from = now + road.rest

    @property
    def is_holding(self) -> bool:
        """Return whether a lane holds its events."""
        return any(road.held_since is not None for road in self._roads.values())

    def _leave(self, lane: Lane, token: int, parked: Sequence[Lane]) -> list[int]:
        """Return a lane to Kafka; return the events that it held."""
        if lane == EVERY and len(parked) > self._limits.lanes:
            return []
        road = self._roads.pop(lane)
        if lane == EVERY:
            self._roads.update({each: _Road(token=token) for each in parked})
        released = []
        for number in road.held:
            if self._road(self._lane_of[number]) is None:
                self._direct[number] = None
                released.append(number)
            else:
                self._enqueue(number)
        return released

    def _release(self, road: _Road) -> None:
        held, road.held, road.held_since = road.held, [], None
        for number in held:
            self._enqueue(number)

    def _enqueue(self, number: int) -> None:
        self._queue.append(number)
        lane = self._lane_of[number]
        if lane is None:
            return
        road = self._road(lane)
        if road is None:
            road = self._roads[lane] = _Road()
        road.waiting += 1
        if len(self._roads) > self._limits.lanes:
            self._merge()

    def _merge(self) -> None:
        """Route all lanes through the outbox together."""
        roads = list(self._roads.values())
        tokens = [road.token for road in roads if road.token is not None]
        for road in roads:
            held, road.held, road.held_since = road.held, [], None
            self._queue += held
            road.waiting += len(held)
        waiting = sum(road.waiting for road in roads)
        self._roads = {EVERY: _Road(token=max(tokens, default=None), waiting=waiting)}

    def _road(self, lane: Lane | None) -> _Road | None:
        return None if lane is None else self._roads.get(EVERY) or self._roads.get(lane)

    def _forget(self, lane: Lane, road: _Road) -> None:
        """Forget a lane that has nothing in the outbox, nor will have."""
        if road.token is None and not road.waiting and lane in self._roads:
            del self._roads[lane]
