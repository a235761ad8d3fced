"""
Pair the events of two topics: one result per call, complete or one-sided.

A call is closed when stream time has passed its first event by more than `within` + `grace`, or
when `close_after` has passed on the wall clock since it came. What was closed is remembered until
everything that could belong to it would be late by itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from spark_jobs.operators import calls
from spark_jobs.operators.alarms import Alarms, Ident
from spark_jobs.operators.calls import Call, Event, Held
from spark_jobs.operators.settings import PairingSettings, milliseconds, wait
from spark_jobs.operators.step import (
    NEVER,
    Input,
    Late,
    Output,
    Paired,
    Skipped,
    Step,
    skipped,
)

_DIGEST_BYTES = 8


@dataclass(slots=True)
class State:
    """The calls of many keys."""

    keys: dict[Ident, Held] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    """Stream time by input partition; 0 where all share one. Not used for `per_key`."""
    behind_at: int = -NEVER
    """When the source was last seen to be behind."""
    waits: Alarms = field(default_factory=Alarms)
    """Wall clock: when calls close, or keys are forgotten."""
    ends: dict[int, Alarms] = field(default_factory=dict)
    """Event time of each shared clock: the beginnings of calls."""


class Pairing:
    """The operator `pairing`."""

    def __init__(self, settings: PairingSettings) -> None:
        self._within = milliseconds(settings.within)
        self._open_for = self._within + milliseconds(settings.grace)
        self._per_key = settings.stream_time == "per_key"
        self._per_partition = settings.stream_time == "per_partition"
        self._close_after = wait(settings.close_after)
        self._forget_after = wait(settings.forget_after)
        self._at_once = settings.emit == "on_pair"
        self._on_duplicate = settings.on_duplicate_side
        self._names = tuple((name, side.topic) for name, side in settings.sides.items())
        self.topics = tuple(side.topic for side in settings.sides.values())
        self._sides = {topic: side for side, topic in enumerate(self.topics)}

    def start(self) -> State:
        return State()

    def step(
        self, state: State, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> Step[State]:
        outputs: list[Output] = []
        if behind:
            state.behind_at = now
        else:
            self._wall(state, now, outputs)
        sides, take = self._sides, self._record
        for record in records:
            side = sides.get(record.topic)
            if record.key is None:
                outputs.append(skipped(record, "no key"))
            elif side is None:
                outputs.append(skipped(record, "no side of a call"))
            else:
                take(state, record, _event(record, side, now), outputs)
        if not behind and not self._close_after:
            self._wall(state, now, outputs)
        return Step(state, outputs, self._deadline(state))

    def restore(self, keys: dict[Ident, Held], clocks: dict[int, int], behind_at: int) -> State:
        """Return the state of which only these parts were kept, whatever `emit` was then."""
        state = State(keys, clocks, behind_at)
        for ident, held in keys.items():
            if not self._at_once:
                held.events = [event for call in held.open for event in call.events()]
                held.events.sort(key=_arrived)
                held.open = []
            self._set_alarms(state, ident, held)
        return state

    def _record(self, state: State, record: Input, event: Event, outputs: list[Output]) -> None:
        if not self._per_key:
            self._record_shared(state, record, event, outputs)
            return
        ident, time, keys = record.key, event.time, state.keys
        held = keys.get(ident)
        if held is None:
            held = keys[ident] = Held(time, event.arrived)
        first = held.events[0] if held.events else None
        held.arrived = event.arrived
        if time >= held.clock:
            held.clock = time
            self._pass(ident, held, time - self._open_for, outputs)
        self._take(held, record, event, outputs, close_time=held.clock - self._open_for)
        # An alarm may be early: that of the first event holds until it is gone.
        if first is None or not held.events or held.events[0] is not first:
            self._set_alarms(state, ident, held)

    def _record_shared(
        self, state: State, record: Input, event: Event, outputs: list[Output]
    ) -> None:
        """Take a record of a key that shares its clock with others."""
        scope = record.partition if self._per_partition else 0
        ident: Ident = (scope, record.key) if self._per_partition else record.key
        time = event.time
        held = state.keys.get(ident)
        if held is None:
            held = state.keys[ident] = Held(time, event.arrived)
        clock = state.clocks[scope] = max(state.clocks.get(scope, -1), time)
        held.arrived = event.arrived
        if clock == time:
            self._pass_all(state, scope, clock - self._open_for, outputs)
            state.keys[ident] = held
        self._take(held, record, event, outputs, close_time=clock - self._open_for)
        self._set_alarms(state, ident, held)
        self._drop_if_empty(state, ident, held)

    def _take(
        self, held: Held, record: Input, event: Event, outputs: list[Output], *, close_time: int
    ) -> None:
        if event.time < close_time:
            outputs.append(Late(record, "too late"))
            return
        if (copy := calls.copied(held, event)) is not None:
            outputs.append(skipped(record, f"duplicate of {copy.offset}"))
            return
        if not held.closed and not self._at_once:  # what is usual
            held.events.append(event)
            return
        near = calls.nearest(self._assembled(held), event, self._within)
        if held.closed and self._is_of_closed(held, event, near):
            outputs.append(Late(record, "its call is closed"))
        elif not self._at_once:
            held.events.append(event)
        elif near is not None:
            calls.join(near[0], event, self._on_duplicate)
            self._emit(held, near[0], record.key or b"", outputs)
        elif (call := calls.doubled(held.open, event, self._within)) is not None:
            calls.join(call, event, self._on_duplicate)
        else:
            held.open.append(calls.begin(event))

    def _is_of_closed(self, held: Held, event: Event, near: tuple[Call, int] | None) -> bool:
        """Tell whether `event` belongs to what is closed rather than to `near`."""
        done = calls.nearest(held.closed, event, self._within)
        if near is not None:
            return done is not None and done[1] <= near[1]
        return bool(done or calls.doubled(held.closed, event, self._within))

    def _assembled(self, held: Held) -> list[Call]:
        """Return the open calls, as far as one can tell."""
        if self._at_once:
            return held.open
        return calls.assemble(held.events, self._within, self._on_duplicate)

    def _emit(self, held: Held, call: Call, key: bytes, outputs: list[Output]) -> None:
        """Say what came of `call`, and remember it."""
        if self._at_once:
            held.open.remove(call)
        elif sum(map(len, (*call.sides, call.dropped))) == len(held.events):
            held.events = []
        else:
            gone = {id(event) for event in call.events()}
            held.events = [event for event in held.events if id(event) not in gone]
        held.closed.append(call)
        if call.dropped:
            outputs += [
                Skipped(key, e.topic, e.partition, e.offset, "duplicate side")
                for e in call.dropped
            ]
        fields: dict[str, Any] = {}
        sides: dict[str, int | list[int]] = {}
        for (name, topic), found in zip(self._names, call.sides, strict=True):
            if not found:
                fields[name] = None
            elif self._on_duplicate != "list":
                fields[name], sides[topic] = found[0].field, found[0].offset
            else:
                fields[name] = [event.field for event in found]
                offsets = [event.offset for event in found]
                sides[topic] = offsets if len(offsets) > 1 else offsets[0]
        time = call.low if not call.dropped else min(event.time for event in call.used())
        outputs.append(tuple.__new__(Paired, (key, time, fields, sides)))

    def _pass_all(self, state: State, scope: int, close_time: int, outputs: list[Output]) -> None:
        """Close and forget what the clock of several keys has passed, by their times."""
        for bound, ident in _ends(state, scope).due(close_time - 1):
            held = state.keys.get(ident)
            if held is None:
                continue
            if self._end(held) == bound:  # else something has changed since
                self._pass(ident, held, bound + 1, outputs)
            self._set_alarms(state, ident, held)
            self._drop_if_empty(state, ident, held)

    def _pass(self, ident: Ident, held: Held, close_time: int, outputs: list[Output]) -> None:
        """Close what begins before `close_time`, and forget what nothing can touch any more."""
        if _is_any_before(close_time, held):
            done = [call for call in self._assembled(held) if call.low < close_time]
            for call in sorted(done, key=_low) if len(done) > 1 else done:
                self._emit(held, call, self._key(ident), outputs)
        if held.closed:
            limit = close_time - self._within
            held.closed = [call for call in held.closed if call.low >= limit]

    def _wall(self, state: State, now: int, outputs: list[Output]) -> None:
        """Close the calls that have waited long enough, and forget quiet keys."""
        for bound, ident in state.waits.due(now):
            held = state.keys.get(ident)
            if held is None:
                continue
            moment = self._moment(state, held)
            if moment > bound:
                state.waits.set(ident, moment)
            elif not held.events and not held.open:
                del state.keys[ident]
            else:
                done = [each for each in self._assembled(held) if self._due(state, each) <= bound]
                for call in sorted(done, key=_low):
                    self._emit(held, call, self._key(ident), outputs)
                self._set_alarms(state, ident, held)

    def _due(self, state: State, call: Call) -> int:
        return max(call.arrived(), state.behind_at) + self._close_after

    def _moment(self, state: State, held: Held) -> int:
        if held.events:  # in the order in which they came
            return min(NEVER, max(held.events[0].arrived, state.behind_at) + self._close_after)
        if held.open:  # likewise
            return min(NEVER, self._due(state, held.open[0]))
        return min(NEVER, max(held.arrived, state.behind_at) + self._forget_after)

    def _end(self, held: Held) -> int:
        """Return the event time after whose passing, and some, something is to be done."""
        lows = [*(event.time for event in held.events), *(call.low for call in held.open)]
        return min([NEVER, *lows, *(call.low + self._within for call in held.closed)])

    def _set_alarms(self, state: State, ident: Ident, held: Held) -> None:
        moment = self._moment(state, held)
        if moment < NEVER:
            state.waits.set(ident, moment)
        if not self._per_key and (held.events or held.open or held.closed):
            scope = ident[0] if self._per_partition else 0
            _ends(state, scope).set(ident, self._end(held))

    def _drop_if_empty(self, state: State, ident: Ident, held: Held) -> None:
        if not held.events and not held.open and not held.closed:
            del state.keys[ident]  # on a shared clock nothing tells it from a key never seen

    def _deadline(self, state: State) -> int | None:
        first = state.waits.first()
        if first is None:
            return None
        return max(first, state.behind_at + min(self._close_after, self._forget_after))

    def _key(self, ident: Ident) -> bytes:
        return ident[1] if self._per_partition else ident  # type: ignore[no-any-return]  # it is


def _event(record: Input, side: int, now: int) -> Event:
    _, time, value, topic, partition, offset, raw, _ = record
    digest = blake2b(raw or b"", digest_size=_DIGEST_BYTES).digest()
    # The tuple's own way to make one; that of the named tuple takes three times as long.
    return tuple.__new__(Event, (time, topic, partition, offset, side, now, digest, value))


def _is_any_before(moment: int, held: Held) -> bool:
    for event in held.events:  # every record comes by here: `any` takes three times as long
        if event[0] < moment:
            return True
    return not held.events and any(call.low < moment for call in held.open)


def _arrived(event: Event) -> int:
    return event.arrived


def _low(call: Call) -> int:
    return call.low


def _ends(state: State, scope: int) -> Alarms:
    return state.ends.setdefault(scope, Alarms())
