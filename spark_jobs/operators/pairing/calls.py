"""Decide which events form a call: the nearest of the other side, each used once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

from spark_jobs.operators.step import NEVER, Input

_DIGEST_BYTES = 8

OnDuplicate: TypeAlias = Literal["first", "last", "list"]


class Event(NamedTuple):
    """One event of a call. A key's events are ordered by time, topic, partition and offset."""

    time: int
    topic: str
    partition: int
    offset: int
    side: int
    arrived: int
    """The wall clock when it came."""
    digest: bytes | Input
    """A digest of its value, to recognise the event when it comes again; at first, its record."""
    field: Any
    """Its contribution to the result."""

    def place(self) -> tuple[int, str, int, int]:
        return self.time, self.topic, self.partition, self.offset

    def is_duplicate(self, other: "Event") -> bool:
        """Return whether this is a redelivery of `other`."""
        return (
            self.time == other.time
            and self.side == other.side
            and _digest(self.digest) == _digest(other.digest)
        )

    def digested(self) -> "Event":
        """Return the event without its record; few events live long enough to need a digest."""
        time, topic, partition, offset, side, arrived, digest, field = self
        if digest.__class__ is bytes:
            return self
        digest = _digest(digest)
        # Calls tuple's own constructor; the named tuple's takes three times as long.
        return tuple.__new__(Event, (time, topic, partition, offset, side, arrived, digest, field))


@dataclass(slots=True, eq=False)
class Call:
    """Events that belong together. No two of them are further apart than `within`."""

    low: int
    high: int
    sides: tuple[list[Event], list[Event]]
    """The events that go into the result."""
    dropped: list[Event] = field(default_factory=list)
    """The events of a side that came twice, and are left out."""

    def events(self) -> list[Event]:
        return [*self.sides[0], *self.sides[1], *self.dropped]

    def is_whole(self) -> bool:
        return bool(self.sides[0] and self.sides[1])

    def used(self) -> list[Event]:
        return [*self.sides[0], *self.sides[1]]

    def arrived(self) -> int:
        return min(event.arrived for event in self.events())


@dataclass(slots=True)
class CallsOfKey:
    """The state of one key."""

    clock: int
    """The key's own stream time; not used where keys share one."""
    arrived: int
    """The wall clock when its last record came that was not late."""
    events: list[Event] = field(default_factory=list)
    """With `on_close`: the events as they came. The calls are decided at the end."""
    open: list[Call] = field(default_factory=list)
    """With `on_pair`."""
    closed: list[Call] = field(default_factory=list)
    """Remembered, so that none of their events produces a second result."""
    ends: int = -NEVER
    """
    Until the clock has passed this, nothing needs to be closed or forgotten; it may be early.
    """

    def latest(self) -> int:
        """Return the wall clock when the last of what it has came."""
        came = [event.arrived for event in self.events]
        came += [event.arrived for call in self.open for event in call.events()]
        return max([self.arrived, *came])


def count(held: CallsOfKey) -> int:
    """Return how many events wait, or are remembered."""
    found = len(held.events)
    for calls in (held.open, held.closed):
        for call in calls:
            found += len(call.sides[0]) + len(call.sides[1]) + len(call.dropped)
    return found


def begin(event: Event) -> Call:
    """Return a call that begins with `event`."""
    return Call(event.time, event.time, ([event], []) if event.side == 0 else ([], [event]))


def is_any_like(events: Sequence[Event], event: Event) -> bool:
    """Return whether one of `events` has the time and side of `event`, as a duplicate has."""
    time, side = event.time, event.side
    for known in events:  # noqa: SIM110  # `any` takes three times as long
        if time == known.time and side == known.side:
            return True
    return False


def duplicated(held: CallsOfKey, event: Event) -> Event | None:
    """Return the event of which `event` is a redelivery, or None."""
    time, side = event.time, event.side
    for known in held.events:
        if time == known.time and side == known.side and event.is_duplicate(known):
            return known
    for known_calls in (held.open, held.closed):
        for call in known_calls:
            for known in call.events():
                if time == known.time and event.is_duplicate(known):
                    return known
    return None


def go_back(held: CallsOfKey, now: int) -> None:
    """Make nothing that `held` has come later than `now`."""
    held.arrived = min(held.arrived, now)
    for events in (
        held.events,
        *(events for call in held.open for events in (*call.sides, call.dropped)),
    ):
        events[:] = [each._replace(arrived=min(each.arrived, now)) for each in events]


def digest(held: CallsOfKey) -> None:
    """Replace the records of the events of `held` by digests."""
    _digest_all(held.events)
    if not held.open and not held.closed:
        return
    for call in (*held.open, *held.closed):
        for events in (*call.sides, call.dropped):
            _digest_all(events)


def remembered(call: Call) -> Call:
    """Return the part of a closed call that must be kept."""
    one, other = ([event._replace(field=None) for event in side] for side in call.sides)
    return Call(call.low, call.high, (one, other), [e._replace(field=None) for e in call.dropped])


def nearest(calls: Iterable[Call], event: Event, within: int) -> tuple[Call, int] | None:
    """
    Return the call that lacks the side of `event`, and the distance of its nearest event.

    None if there is none within reach. Ties go to the lower offset.
    """
    best: tuple[int, int] | None = None
    found: Call | None = None
    for call in calls:
        if call.sides[event.side] or not _reaches(call, event, within):
            continue
        rank = min((abs(event.time - e.time), e.offset) for e in call.sides[1 - event.side])
        if best is None or rank < best:
            best, found = rank, call
    return None if best is None or found is None else (found, best[0])


def doubled(calls: Iterable[Call], event: Event, within: int) -> Call | None:
    """Return the call in which the side of `event` is taken already."""
    reached = [each for each in calls if each.sides[event.side] and _reaches(each, event, within)]
    return min(reached, key=lambda call: abs(event.time - call.low), default=None)


def join(call: Call, event: Event, on_duplicate: OnDuplicate) -> None:
    """Make `event` part of `call`."""
    side = call.sides[event.side]
    if not side or on_duplicate == "list":
        side.append(event)
    elif on_duplicate == "first":
        call.dropped.append(event)
        return
    else:
        call.dropped.append(side.pop())
        side.append(event)
    call.low, call.high = min(call.low, event.time), max(call.high, event.time)


def is_any_before(moment: int, held: CallsOfKey) -> bool:
    """Return whether something that is open begins before `moment`."""
    for event in held.events:  # every record comes by here: `any` takes three times as long
        if event[0] < moment:
            return True
    return not held.events and any(call.low < moment for call in held.open)


def pair(events: Sequence[Event], within: int) -> tuple[Event, Event] | None:
    """Return two events in the order of their sides if they form one call, or None."""
    if len(events) != 2:  # noqa: PLR2004  # a pair
        return None
    one, other = events
    if one.side == other.side or not -within <= one.time - other.time <= within:
        return None
    return (one, other) if one.side == 0 else (other, one)


def whole(one: Event, other: Event) -> Call:
    """Return the call of one event of each side."""
    return Call(min(one.time, other.time), max(one.time, other.time), ([one], [other]))


def assemble(events: Sequence[Event], within: int, on_duplicate: OnDuplicate) -> list[Call]:
    """Return the calls that `events` form, as if they had come in the order of their times."""
    if len(events) == 1:
        return [begin(events[0])]
    if (found := pair(events, within)) is not None:
        return [whole(*found)]
    calls: list[Call] = []
    for event in sorted(events, key=Event.place):
        near = nearest(calls, event, within)
        call = near[0] if near else doubled(calls, event, within)
        if call is None:
            calls.append(begin(event))
        else:
            join(call, event, on_duplicate)
    return calls


def _reaches(call: Call, event: Event, within: int) -> bool:
    return event.time - call.low <= within and call.high - event.time <= within


def _digest_all(events: list[Event]) -> None:
    events[:] = map(Event.digested, events)


def _digest(of: bytes | Input) -> bytes:
    if isinstance(of, bytes):
        return of
    return blake2b(of.raw or b"", digest_size=_DIGEST_BYTES).digest()
