"""
Session windows with the semantics of Kafka Streams, and one rule where it has three.

A session is closed when its end is before the close time: stream time - grace - gap, or the moment
to which the wall clock closed the key. That one comparison decides whether a record is late, a
session final, and its state gone. Windows are inclusive; neighbours at exactly the gap's distance
share a session.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from pydantic_core import from_json

from spark_jobs.operators.alarms import Alarms, Ident
from spark_jobs.operators.sessions import aggregates
from spark_jobs.operators.sessions.columns import Rules, take
from spark_jobs.operators.sessions.keys import BEFORE_ALL, Open, SessionsOfKey, SessionState
from spark_jobs.operators.settings import SessionsSettings, milliseconds, wait
from spark_jobs.operators.step import (
    NEVER,
    Failed,
    Input,
    Inputs,
    Late,
    Output,
    Session,
    StepResult,
    believed,
    skipped,
)


class Sessions:
    """The operator `sessions`."""

    def __init__(self, settings: SessionsSettings) -> None:
        self._gap = milliseconds(settings.gap)
        self._open_for = self._gap + milliseconds(settings.grace)
        self._per_key = settings.stream_time == "per_key"
        self._per_partition = settings.stream_time == "per_partition"
        self._close_after = wait(settings.close_after)
        self._forget_after = wait(settings.forget_after)
        self._max_ahead = wait(settings.max_ahead)
        self._updates = settings.emit == "update"
        self._aggregate = aggregates.load(settings.aggregate, settings.max_value_bytes)
        self._is_simple = self._aggregate.is_neutral and not self._updates
        self._begun = self._aggregate.begin or self._first
        self._text_keys = settings.key == "record"
        self._rules = Rules(
            gap=self._gap, open_for=self._open_for, fold=aggregates.folding(self._aggregate)
        )

    def start(self) -> SessionState:
        return SessionState()

    def step(
        self, state: SessionState, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[SessionState]:
        outputs: list[Output] = []
        if now < state.latest:
            self._go_back(state, now)
        state.latest = now
        if behind:
            state.behind_at = now
        else:
            self._wall(state, now, outputs)
        if self._per_key:
            keys = records.keys if isinstance(records, Inputs) else [each.key for each in records]
            state.changes.touch(keys)
        if self._per_key and self._is_simple:
            if isinstance(records, Inputs):
                self._own_columns(state, records, now, outputs)
            else:
                self._own_all(state, records, now, outputs)
        else:
            take = self._own if self._per_key else self._shared
            for record in records:
                if record.key is None:
                    outputs.append(skipped(record, "no key"))
                else:
                    take(state, record, now, outputs)
        if not behind and not self._close_after:
            self._wall(state, now, outputs)
        return StepResult(state, outputs, self._deadline(state))

    def renew(
        self,
        state: SessionState,
        keys: dict[Ident, SessionsOfKey],
        clocks: dict[int, int],
        behind_at: int,
    ) -> None:
        """Replace `keys` of a state, and all that is no key's, by what was stored."""
        state.keys.update(keys)
        state.clocks, state.behind_at = clocks, behind_at
        state.latest = max([state.latest, behind_at, *(held.arrived for held in keys.values())])
        for ident, held in keys.items():
            self._set_alarms(state, ident, held)
            if held.open and held.open[0].end < self._close_time(state, ident, held):
                state.waits.set(ident, held.arrived)  # the gap or the grace has become shorter
            if not self._per_key:
                for session in held.open:
                    _ends(state, self._scope(ident)).set(ident, session.end)

    def _go_back(self, state: SessionState, now: int) -> None:
        """Bound what a wrong clock has left by `now`."""
        state.changes.settle(is_all=True)
        state.behind_at = min(state.behind_at, now)
        for scope, clock in state.clocks.items():
            state.clocks[scope] = believed(clock, now, self._max_ahead)
        for ident, held in state.keys.items():
            held.arrived = min(held.arrived, now)
            held.clock = believed(held.clock, now, self._max_ahead)
            held.floor = believed(held.floor, now, self._max_ahead)
            self._set_alarms(state, ident, held)

    def _own_columns(
        self, state: SessionState, records: Inputs, now: int, outputs: list[Output]
    ) -> None:
        """Take records by columns, as far as that goes; the results are those of `_own_all`."""
        taken = take(state.keys, records, now, self._rules)
        if taken is None:
            self._own_all(state, records, now, outputs)
            return
        for key in taken.begun:
            self._set_alarms(state, key, state.keys[key])
        if not taken.odd:
            if taken.closed.keys:
                outputs.append(taken.closed)
            return
        found: list[tuple[int, Output]] = [
            *zip(taken.closers, taken.closed.sessions(), strict=True)
        ]
        for row in taken.odd:
            told: list[Output] = []
            self._own_all(state, [records[row]], now, told)
            found += [(row, each) for each in told]
        found.sort(key=itemgetter(0))  # a record's own outputs stay in their order
        outputs += [output for _, output in found]

    def _own_all(
        self, state: SessionState, records: Sequence[Input], now: int, outputs: list[Output]
    ) -> None:
        """
        Take records as `_own` does, for aggregates that need no more.

        Most records come at the end of the last session of their key, or in a new one after it.
        These are taken here, without a call for each step of the work.
        """
        keys, gap, open_for = state.keys, self._gap, self._open_for
        aggregator, begin = self._aggregate.aggregator, self._begun
        for record in records:
            key, time = record[0], record[1]  # by index, because names are expensive here
            held = keys.get(key)
            if held is None or time < held.clock or time < held.floor:
                self._other(state, record, now, outputs)
                continue
            open_ = held.open
            was_open = bool(open_)
            last = open_[-1] if was_open else None
            if last is not None and time < last.end:
                self._other(state, record, now, outputs)
                continue
            try:
                if last is not None and time <= last.end + gap:
                    last.value = aggregator("", record[2], last.value)
                    last.end = time
                    last.revision += 1
                else:
                    open_.append(Open(time, time, begin(record[2]), 1))
            except Exception:  # noqa: BLE001  # it raises again where it is reported
                self._other(state, record, now, outputs)
                continue
            held.clock, held.arrived = time, now
            close_time = max(time - open_for, held.floor)
            if open_[0].end < close_time:
                self._close(state, key, close_time, outputs)
            # An alarm may be early, so a key that stays open already has one.
            if not was_open or not open_:
                self._set_alarms(state, key, held)

    def _first(self, value: Any) -> Any:  # noqa: ANN401  # JSON
        return self._aggregate.aggregator("", value, self._aggregate.initializer())

    def _other(self, state: SessionState, record: Input, now: int, outputs: list[Output]) -> None:
        if record.key is None:
            outputs.append(skipped(record, "no key"))
        else:
            self._own(state, record, now, outputs)

    def _own(self, state: SessionState, record: Input, now: int, outputs: list[Output]) -> None:
        """Take a record of a key with its own clock."""
        key, time = record.key, record.time
        held = state.keys.get(key)
        if held is None:
            held = state.keys[key] = SessionsOfKey(time, now)
        was_open = bool(held.open)
        has_advanced = time >= held.clock
        if has_advanced:
            held.clock = time
        close_time = max(held.clock - self._open_for, held.floor)
        if self._join(held, record, close_time, outputs):
            held.arrived = now
        if has_advanced and held.open and held.open[0].end < close_time:
            self._close(state, key, close_time, outputs)
        # An alarm may be early, so a key that stays open already has one.
        if not was_open or not held.open:
            self._set_alarms(state, key, held)

    def _shared(self, state: SessionState, record: Input, now: int, outputs: list[Output]) -> None:
        """Take a record of a key that shares its clock with others."""
        scope = record.partition if self._per_partition else 0
        ident: Ident = (scope, record.key) if self._per_partition else record.key
        time = record.time
        state.changes.touched[ident] = None
        held = state.keys.get(ident)
        if held is None:
            held = state.keys[ident] = SessionsOfKey(time, now)
        before = state.clocks.get(scope, -1)
        clock = state.clocks[scope] = max(before, time)
        if self._join(held, record, max(clock - self._open_for, held.floor), outputs):
            held.arrived = now
        self._set_alarms(state, ident, held)
        self._set_end(state, scope, ident, held)
        self._drop_if_empty(state, ident, held, clock - self._open_for)
        if clock != before:
            self._close_shared(state, scope, clock - self._open_for, outputs)

    def _join(
        self, held: SessionsOfKey, record: Input, close_time: int, outputs: list[Output]
    ) -> bool:
        """Put `record` into its session, which may merge others; return whether it is in one."""
        time, gap, open_ = record.time, self._gap, held.open
        found = [each for each in open_ if each.start - gap <= time <= each.end + gap]
        if not found and time < close_time:
            outputs.append(Late(record, "its session is closed", close_time))
            return False
        try:
            if len(found) == 1 and len(open_) == 1 and self._is_simple:
                session = found[0]
                session.value = self._aggregate.aggregator("", record.value, session.value)
                session.revision += 1
                if time > session.end:
                    session.end = time
                elif time < session.start:
                    session.start = time
                return True
            value = self._aggregated(record, found)
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises
            outputs.append(Failed(record, f"aggregate: {type(error).__name__}: {error}"))
            return False
        if not found:
            joined = Open(time, time, value, 1)
        else:
            joined = Open(
                start=min(time, *(each.start for each in found)),
                end=max(time, *(each.end for each in found)),
                value=value,
                revision=1 + max(each.revision for each in found),
            )
        if self._updates:
            self._emit(record, found, joined, outputs)
        rest = [each for each in open_ if each not in found] if found else open_
        if not rest or rest[-1].end <= joined.end:
            held.open = [*rest, joined]
        else:
            held.open = sorted([*rest, joined], key=_end)
        return True

    def _aggregated(self, record: Input, found: list[Open]) -> Any:  # noqa: ANN401  # JSON
        functions = self._aggregate
        if functions.is_neutral and len(found) < 2:  # noqa: PLR2004  # nothing to merge
            value = found[0].value if found else functions.initializer()
            return functions.aggregator("", record.value, value)
        key = self._key(record.key or b"")
        value = functions.initializer()
        for session in found:
            value = functions.merger(key, value, session.value)
        return functions.aggregator(key, record.value, value)

    def _emit(self, record: Input, found: list[Open], joined: Open, outputs: list[Output]) -> None:
        """Output the changes, in the order of Kafka Streams."""
        key, time = record.key or b"", record.time
        if joined.start != time or joined.end != time:
            outputs += [
                Session("retract", key, each.start, each.end, None, each.revision)
                for each in found
            ]
        value = self._aggregate.snapshot(joined.value)
        outputs.append(Session("update", key, joined.start, joined.end, value, joined.revision))

    def _close_shared(
        self, state: SessionState, scope: int, close_time: int, outputs: list[Output]
    ) -> None:
        """
        Close what ends before `close_time`, for all keys of a clock, in the order of their ends.
        """
        ends = _ends(state, scope)
        for bound, ident in ends.due(close_time - 1):
            held = state.keys.get(ident)
            if held is None:
                continue
            if held.open and held.open[0].end == bound:  # otherwise it has grown since
                self._close(state, ident, bound + 1, outputs)
            self._set_end(state, scope, ident, held)
            self._drop_if_empty(state, ident, held, close_time)

    @staticmethod
    def _drop_if_empty(
        state: SessionState, ident: Ident, held: SessionsOfKey, close_time: int
    ) -> None:
        if not held.open and held.floor <= close_time:
            state.forget(ident)  # on a shared clock, it looks like a key never seen

    def _close(
        self, state: SessionState, ident: Ident, close_time: int, outputs: list[Output]
    ) -> None:
        state.changes.touched[ident] = None
        held = state.keys[ident]
        key = ident[1] if self._per_partition else ident
        while held.open and held.open[0].end < close_time:
            done = held.open.pop(0)
            told = ("result", key, done.start, done.end, done.value, done.revision)
            # Calls tuple's own constructor; the named tuple's takes three times as long.
            outputs.append(tuple.__new__(Session, told))

    def _wall(self, state: SessionState, now: int, outputs: list[Output]) -> None:
        """Close the keys that have been quiet for long enough, and forget others."""
        for bound, ident in state.waits.due(now):
            held = state.keys.get(ident)
            if held is None:
                continue
            close_time = self._close_time(state, ident, held)
            if held.open and held.open[0].end < close_time:
                self._close(state, ident, close_time, outputs)
            moment = self._moment(state, held)
            if moment > bound:  # records have come since
                state.waits.set(ident, moment)
            elif held.open:
                held.floor = held.open[-1].end + 1
                self._close(state, ident, held.floor, outputs)
                self._set_alarms(state, ident, held)
            else:
                state.forget(ident)

    def _close_time(self, state: SessionState, ident: Ident, held: SessionsOfKey) -> int:
        clock = held.clock if self._per_key else state.clocks.get(self._scope(ident), BEFORE_ALL)
        return max(clock - self._open_for, held.floor)

    def _moment(self, state: SessionState, held: SessionsOfKey) -> int:
        time = self._close_after if held.open else self._forget_after
        return min(NEVER, max(held.arrived, state.behind_at) + time)

    def _set_alarms(self, state: SessionState, ident: Ident, held: SessionsOfKey) -> None:
        moment = self._moment(state, held)
        if moment < NEVER:
            state.waits.set(ident, moment)

    def _set_end(self, state: SessionState, scope: int, ident: Ident, held: SessionsOfKey) -> None:
        if held.open:
            _ends(state, scope).set(ident, held.open[0].end)

    def _deadline(self, state: SessionState) -> int | None:
        first = state.waits.first()
        if first is None:
            return None
        return max(first, state.behind_at + min(self._close_after, self._forget_after))

    def _scope(self, ident: Ident) -> int:
        return ident[0] if self._per_partition else 0

    def _key(self, key: bytes) -> str | list[Any]:
        if self._aggregate.is_neutral:
            return ""  # the named aggregates do not look at it
        return key.decode(errors="replace") if self._text_keys else from_json(key)


def _ends(state: SessionState, scope: int) -> Alarms:
    found = state.ends.get(scope)
    if found is None:
        found = state.ends[scope] = Alarms()
    return found


def _end(session: Open) -> int:
    return session.end
