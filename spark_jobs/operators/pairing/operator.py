"""
Pair the events of two topics: one result per call, complete or one-sided.

A call closes when stream time has passed its first event by more than `within` + `grace`, or when
`close_after` has passed on the wall clock since it came. A closed call is remembered until every
event that could belong to it would be late anyway.
"""

from collections.abc import Sequence
from operator import attrgetter

from spark_jobs.operators.alarms import Alarms, Ident
from spark_jobs.operators.pairing import calls
from spark_jobs.operators.pairing.calls import Call, CallsOfKey, Event
from spark_jobs.operators.pairing.sayings import Sayings
from spark_jobs.operators.pairing.state import PairState
from spark_jobs.operators.settings import PairingSettings, milliseconds, wait
from spark_jobs.operators.step import (
    NEVER,
    Failed,
    Input,
    Late,
    Output,
    Skipped,
    StepResult,
    believed,
    skipped,
)

_arrived, _low = attrgetter("arrived"), attrgetter("low")
# Calls tuple's own constructor; the named tuple's takes three times as long.
_new = tuple.__new__


class Pairing:
    """The operator `pairing`."""

    def __init__(self, settings: PairingSettings) -> None:
        self._within = milliseconds(settings.within)
        self._open_for = self._within + milliseconds(settings.grace)
        self._per_key = settings.stream_time == "per_key"
        self._per_partition = settings.stream_time == "per_partition"
        self._close_after = wait(settings.close_after)
        self._forget_after = wait(settings.forget_after)
        self._max_ahead = wait(settings.max_ahead)
        self._most = settings.max_events
        self._at_once = settings.emit == "on_pair"
        self._on_duplicate = settings.on_duplicate_side
        self._sayings = Sayings.of(settings)
        self.topics = tuple(side.topic for side in settings.sides.values())
        self._sides = {topic: side for side, topic in enumerate(self.topics)}

    def start(self) -> PairState:
        return PairState()

    def step(
        self, state: PairState, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[PairState]:
        outputs: list[Output] = []
        if now < state.latest:
            self._go_back(state, now)
        state.latest = now
        if behind:
            state.behind_at = now
        else:
            self._wall(state, now, outputs)
        (self._own_clocks if self._per_key else self._shared)(state, records, outputs, now)
        if not behind and not self._close_after:
            self._wall(state, now, outputs)
        return StepResult(state, outputs, self._deadline(state))

    def renew(
        self,
        state: PairState,
        keys: dict[Ident, CallsOfKey],
        clocks: dict[int, int],
        behind_at: int,
    ) -> None:
        """
        Replace `keys` of a state, and all that is no key's, by what was stored.

        Open calls take the form that this `emit` needs, whatever it was then.
        """
        state.keys.update(keys)
        state.clocks, state.behind_at = clocks, behind_at
        state.latest = max(state.latest, behind_at)
        for ident, held in keys.items():
            state.latest = max(state.latest, held.latest())
            if self._at_once:
                held.open += map(calls.begin, held.events)
                held.events = []
            else:
                held.events += [event for call in held.open for event in call.events()]
                held.events.sort(key=_arrived)
                held.open = []
            self._set_alarms(state, ident, held)
            if calls.is_any_before(self._close_time(state, ident, held), held):
                state.waits.set(ident, held.arrived)  # `within` or the grace has become shorter

    def _go_back(self, state: PairState, now: int) -> None:
        """Bound what a wrong clock has left by `now`."""
        state.changes.settle(is_all=True)
        state.behind_at = min(state.behind_at, now)
        for scope, clock in state.clocks.items():
            state.clocks[scope] = believed(clock, now, self._max_ahead)
        for ident, held in state.keys.items():
            held.clock = believed(held.clock, now, self._max_ahead)
            calls.go_back(held, now)
            self._set_alarms(state, ident, held)

    def _own_clocks(
        self, state: PairState, records: Sequence[Input], outputs: list[Output], now: int
    ) -> None:
        """Take records of keys with a clock of their own."""
        keys, sides, open_for = state.keys, self._sides, self._open_for
        at_once, any_like, most = self._at_once, calls.is_any_like, self._most
        alarm = min(NEVER, max(now, state.behind_at) + self._close_after)
        taken: dict[bytes, CallsOfKey] = {}
        for record in records:
            key, time, value, topic, partition, offset, _, _ = record
            side = sides.get(topic)
            if key is None or side is None:
                outputs.append(_unfit(record))
                continue
            event = _new(Event, (time, topic, partition, offset, side, now, record, value))
            held = keys.get(key)
            if held is None:
                held = keys[key] = CallsOfKey(time, now)
            taken[key] = held
            if time >= held.clock:
                held.clock = time
                if held.ends < time - open_for:
                    self._catch_up(state, key, held, outputs)
            events, close_time = held.events, held.clock - open_for
            is_usual = not (held.closed or at_once or time < close_time or len(events) >= most)
            if not is_usual or (events and any_like(events, event)):
                self._take(held, record, event, outputs, close_time=close_time)
                self._set_alarms(state, key, held)
            else:  # the usual case
                if not events:  # otherwise there is an alarm
                    state.waits.set(key, alarm)
                events.append(event)
                held.arrived = now
            if time < held.ends:  # noqa: PLR1730  # `min` takes three times as long
                held.ends = time
        state.changes.touch(taken)
        for held in taken.values():
            calls.digest(held)

    def _catch_up(
        self, state: PairState, key: bytes, held: CallsOfKey, outputs: list[Output]
    ) -> None:
        """Close and forget what the clock of a key has passed."""
        self._pass(key, held, held.clock - self._open_for, outputs)
        if held.events or held.open or held.closed:
            held.ends = self._end(held)
            self._set_alarms(state, key, held)
        else:  # the usual case
            held.ends = NEVER

    def _shared(
        self, state: PairState, records: Sequence[Input], outputs: list[Output], now: int
    ) -> None:
        """Take records of keys that share their clocks with others."""
        for record in records:
            key, time, value, topic, partition, offset, _, _ = record
            side = self._sides.get(topic)
            if key is None or side is None:
                outputs.append(_unfit(record))
                continue
            event = Event(time, topic, partition, offset, side, now, record, value)
            self._record(state, record, event.digested(), outputs)

    def _record(
        self, state: PairState, record: Input, event: Event, outputs: list[Output]
    ) -> None:
        scope = record.partition if self._per_partition else 0
        ident: Ident = (scope, record.key) if self._per_partition else record.key
        time = event.time
        held = state.keys.get(ident)
        if held is None:
            held = state.keys[ident] = CallsOfKey(time, event.arrived)
        clock = state.clocks[scope] = max(state.clocks.get(scope, -1), time)
        if clock == time:
            self._pass_all(state, scope, clock - self._open_for, outputs)
            state.keys[ident] = held
        state.changes.touched[ident] = None
        self._take(held, record, event, outputs, close_time=clock - self._open_for)
        self._set_alarms(state, ident, held)
        self._drop_if_empty(state, ident, held)

    def _take(
        self,
        held: CallsOfKey,
        record: Input,
        event: Event,
        outputs: list[Output],
        *,
        close_time: int,
    ) -> None:
        if event.time < close_time:
            outputs.append(Late(record, "too late"))
            return
        if (before := calls.duplicated(held, event)) is not None:
            held.arrived = event.arrived  # for as long as copies come, it must be remembered
            outputs.append(skipped(record, f"duplicate of {before.offset}"))
            return
        if (count := calls.count(held)) >= self._most:
            outputs.append(Failed(record, _too_many(count, self._most)))
            return
        if not held.closed and not self._at_once:  # the usual case
            held.arrived = event.arrived
            held.events.append(event)
            return
        near = calls.nearest(self._assembled(held), event, self._within)
        if held.closed and self._is_of_closed(held, event, near):
            outputs.append(Late(record, "its call is closed"))
            return
        held.arrived = event.arrived
        if not self._at_once:
            held.events.append(event)
        elif near is not None:
            calls.join(near[0], event, self._on_duplicate)
            self._emit(held, near[0], record.key or b"", outputs)
        elif (call := calls.doubled(held.open, event, self._within)) is not None:
            calls.join(call, event, self._on_duplicate)
        else:
            held.open.append(calls.begin(event))

    def _is_of_closed(self, held: CallsOfKey, event: Event, near: tuple[Call, int] | None) -> bool:
        """Return whether `event` belongs to a closed call rather than to `near`."""
        done = calls.nearest(held.closed, event, self._within)
        if near is not None:
            return done is not None and done[1] <= near[1]
        return bool(done or calls.doubled(held.closed, event, self._within))

    def _assembled(self, held: CallsOfKey) -> list[Call]:
        """Return the open calls, as far as they are known."""
        if self._at_once:
            return held.open
        return calls.assemble(held.events, self._within, self._on_duplicate)

    def _emit(self, held: CallsOfKey, call: Call, key: bytes, outputs: list[Output]) -> None:
        """Output the result of `call`, and remember it."""
        if self._at_once:
            held.open.remove(call)
        else:
            gone = {id(event) for event in call.events()}
            held.events = [event for event in held.events if id(event) not in gone]
        held.closed.append(call)
        outputs += self._sayings.of_call(key, call)

    def _pass_all(
        self, state: PairState, scope: int, close_time: int, outputs: list[Output]
    ) -> None:
        """
        Close and forget what the clock of several keys has passed, in the order of their times.
        """
        for bound, ident in _ends(state, scope).due(close_time - 1):
            held = state.keys.get(ident)
            if held is None:
                continue
            if self._end(held) == bound:  # otherwise something has changed since
                state.changes.touched[ident] = None
                self._pass(ident, held, bound + 1, outputs)
            self._set_alarms(state, ident, held)
            self._drop_if_empty(state, ident, held)

    def _pass(
        self, ident: Ident, held: CallsOfKey, close_time: int, outputs: list[Output]
    ) -> None:
        """
        Close calls that begin before `close_time`; forget those that nothing can affect any more.
        """
        forget_time = close_time - self._within
        if (pair := calls.pair(held.events, self._within)) and not self._sayings.as_list:
            one, other = pair  # the usual case
            low = min(one.time, other.time)
            if low < close_time:
                held.events = []
                outputs.append(self._sayings.of_pair(self._key(ident), low, one, other))
                if low >= forget_time:
                    held.closed.append(calls.whole(one, other))
        elif calls.is_any_before(close_time, held):
            done = [call for call in self._assembled(held) if call.low < close_time]
            for call in sorted(done, key=_low) if len(done) > 1 else done:
                self._emit(held, call, self._key(ident), outputs)
        if held.closed:
            held.closed = [call for call in held.closed if call.low >= forget_time]

    def _wall(self, state: PairState, now: int, outputs: list[Output]) -> None:
        """Close the calls that have waited long enough, and forget quiet keys."""
        for bound, ident in state.waits.due(now):
            held = state.keys.get(ident)
            if held is None:
                continue
            close_time = self._close_time(state, ident, held)
            if calls.is_any_before(close_time, held):
                state.changes.touched[ident] = None
                self._pass(ident, held, close_time, outputs)
            moment = self._moment(state, held)
            if moment > bound:
                state.waits.set(ident, moment)
            elif not held.events and not held.open:
                state.forget(ident)
            else:
                state.changes.touched[ident] = None
                done = [each for each in self._assembled(held) if self._due(state, each) <= bound]
                for call in sorted(done, key=_low):
                    self._emit(held, call, self._key(ident), outputs)
                self._set_alarms(state, ident, held)

    def _close_time(self, state: PairState, ident: Ident, held: CallsOfKey) -> int:
        scope = ident[0] if self._per_partition else 0
        clock = held.clock if self._per_key else state.clocks.get(scope, -NEVER)
        return clock - self._open_for

    def _due(self, state: PairState, call: Call) -> int:
        return max(call.arrived(), state.behind_at) + self._close_after

    def _moment(self, state: PairState, held: CallsOfKey) -> int:
        if held.events:  # in the order in which they came
            return min(NEVER, max(held.events[0].arrived, state.behind_at) + self._close_after)
        if held.open:  # likewise
            return min(NEVER, self._due(state, held.open[0]))
        return min(NEVER, max(held.arrived, state.behind_at) + self._forget_after)

    def _end(self, held: CallsOfKey) -> int:
        """Return the event time after whose passing, plus a margin, something must be done."""
        if not held.events and not held.open and not held.closed:
            return NEVER
        lows = [*(event.time for event in held.events), *(call.low for call in held.open)]
        return min([NEVER, *lows, *(call.low + self._within for call in held.closed)])

    def _set_alarms(self, state: PairState, ident: Ident, held: CallsOfKey) -> None:
        moment = self._moment(state, held)
        if moment < NEVER:
            state.waits.set(ident, moment)
        if not self._per_key and (held.events or held.open or held.closed):
            scope = ident[0] if self._per_partition else 0
            _ends(state, scope).set(ident, self._end(held))

    def _drop_if_empty(self, state: PairState, ident: Ident, held: CallsOfKey) -> None:
        if not held.events and not held.open and not held.closed:
            state.forget(ident)  # on a shared clock, it looks like a key never seen

    def _deadline(self, state: PairState) -> int | None:
        first = state.waits.first()
        if first is None:
            return None
        return max(first, state.behind_at + min(self._close_after, self._forget_after))

    def _key(self, ident: Ident) -> bytes:
        return ident[1] if self._per_partition else ident  # type: ignore[no-any-return]  # it is


def _too_many(count: int, most: int) -> str:
    return (
        f"its key has {count} events that wait or are remembered, and `max_events` is {most}: "
        "raise it, choose a key for each call, or close earlier (`within`, `grace`, `close_after`)"
    )


def _unfit(record: Input) -> Skipped:
    return skipped(record, "no key" if record.key is None else "no side of a call")


def _ends(state: PairState, scope: int) -> Alarms:
    return state.ends.setdefault(scope, Alarms())
