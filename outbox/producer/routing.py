"""
Which way each event of a producer goes: to Kafka itself, or through the outbox.

Decides, and does nothing: no clock, no Kafka, no Postgres. Events are numbers, in the order in
which they were offered. A *lane* is a key of a topic, whose events are to keep their order. Once
an event of a lane has gone into the outbox, the later ones follow it there, until the outbox says
of the *token* (the transaction that wrote the last of them) that it has drained.

A lane whose events come faster than that can be told would never return. So when an earlier token
has drained, the lane *holds* its next events for a moment, neither here nor there, until the last
one has, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

Lane: TypeAlias = bytes
EVERY: Lane = b""
"""Stands for all lanes: they are too many to be known one by one, or not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of what is remembered and asked, and of how long a lane holds its events."""

    lanes: int = 10_000
    """So many lanes are known one by one; if there are more, all go through the outbox."""

    questions: int = 1_000
    """So many are asked about at once."""

    hold: float = 3.0
    """A lane holds its events for so long, in seconds; then they go into the outbox after all."""

    rest: float = 1.0
    """… and waits for so long before it tries again: twice as long each time."""

    longest_rest: float = 60.0


@dataclass(slots=True, kw_only=True)
class _Road:
    """A lane on its way through the outbox."""

    token: int | None = None
    """The newest transaction that wrote an event of it; None: none has yet."""
    asked: int | None = None
    """An older one, perhaps: one that is asked about until it has drained."""
    waiting: int = 0
    """Events of it that are to be written."""
    held: list[int] = field(default_factory=list)
    held_since: float | None = None
    holds_from: float = 0.0
    rest: float = 0.0


class Routing:
    """The events of one producer that nobody has accepted yet, and the lanes that they are in."""

    def __init__(self, limits: Limits | None = None, *, fresh: bool = False) -> None:
        """
        Begin without a broker.

        Unless `fresh`, an earlier producer of these lanes may have left events in the outbox:
        they come first.
        """
        self._limits = limits or Limits()
        self.is_up = False
        """Events may be sent to Kafka."""
        self._lane_of: dict[int, Lane | None] = {}
        self._direct: dict[int, None] = {}
        self._queue: list[int] = []
        self._writing: list[int] = []
        self._roads: dict[Lane, _Road] = {} if fresh else {EVERY: _Road()}

    def offer(self, number: int, lane: Lane | None) -> bool:
        """
        Take an event, and tell whether it is to be sent to Kafka now.

        Numbers rise. Without a lane, an event has no order.
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
        """Learn that the broker has these, and return those that are accepted by it."""
        accepted = [number for number in numbers if number in self._direct]
        for number in accepted:
            del self._direct[number], self._lane_of[number]
        return accepted

    def broken(self) -> None:
        """
        Learn that an event failed or may have, and that the producer is no more.

        What it has not acknowledged goes into the outbox in the order in which it was sent.
        """
        self.is_up = False
        unsure = list(self._direct)
        self._direct.clear()
        for number in unsure:
            self._enqueue(number)
        for road in list(self._roads.values()):
            self._release(road)

    def restored(self) -> None:
        """Learn that there is a producer again."""
        self.is_up = True

    @property
    def unsure(self) -> int | None:
        """The oldest event that was sent and is not acknowledged."""
        return next(iter(self._direct), None)

    @property
    def backlog(self) -> int:
        """How many events are to be written into the outbox."""
        return len(self._queue)

    @property
    def lanes(self) -> int:
        """How many lanes go through the outbox, `EVERY` counting as one."""
        return len(self._roads)

    def write(self) -> Sequence[int]:
        """Return what is to be written now, in this order, in one transaction."""
        if self._writing:
            msg = "one transaction after the other"
            raise AssertionError(msg)
        self._writing, self._queue = self._queue, []
        return self._writing

    def written(self, token: int) -> Sequence[int]:
        """Learn that the transaction `token` is committed, and return what is accepted by it."""
        done, self._writing = self._writing, []
        for number in done:
            road = self._road(self._lane_of.pop(number))
            if road is not None:
                road.token, road.waiting = token, road.waiting - 1
        return done

    def not_written(self, given_up: Iterable[int]) -> None:
        """Learn that nothing was written, perhaps; `given_up` shall not be tried again."""
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
        """Tell whether it takes a transaction without events to know what is to drain."""
        road = self._roads.get(EVERY)
        return road is not None and road.token is None and not road.waiting

    def began(self, token: int) -> None:
        """Learn of such a transaction, which was committed just now."""
        if self.needs_token:
            self._roads[EVERY].token = token

    def questions(self) -> dict[Lane, int]:
        """Return the tokens to ask about, those first that were not asked about for longest."""
        asked: dict[Lane, int] = {}
        written = ((lane, road) for lane, road in self._roads.items() if road.token is not None)
        for lane, road in islice(written, self._limits.questions):
            # Of the newest one it could never be told, where they come faster than answers.
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
        Learn which of the lanes asked about have drained; return what is to be sent to Kafka now.

        `parked` are lanes of which something is parked, if `EVERY` was asked about.
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
        """Give up holding where it takes too long."""
        for road in list(self._roads.values()):
            if road.held_since is not None and now - road.held_since >= self._limits.hold:
                self._release(road)
                road.rest = min(max(self._limits.rest, road.rest * 2), self._limits.longest_rest)
                road.holds_from = now + road.rest

    @property
    def is_holding(self) -> bool:
        """Tell whether a lane holds its events."""
        return any(road.held_since is not None for road in self._roads.values())

    def _leave(self, lane: Lane, token: int, parked: Sequence[Lane]) -> list[int]:
        """Let a lane go back to Kafka, and return what it held."""
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
        """Have all lanes go through the outbox together."""
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
        """Forget a lane of which nothing is in the outbox, nor will be."""
        if road.token is None and not road.waiting and lane in self._roads:
            del self._roads[lane]
