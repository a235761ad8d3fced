"""
Collect the events of a key in a window until a trigger fires: the declarative step.

A key has one window. For `count` and `dsl` it ends when the next event is more than `timeout`
later, or when none has come for that long; for `time` and `timeFromEvent`, once a day.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from outbox.envelope import Record
from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.chunks import (
    TAIL,
    Chunks,
    InMemory,
    events_of,
    put_aside,
    size_of,
)
from spark_jobs.operators.aggregation.config import (
    CountTrigger,
    EventTimeTrigger,
    Gapped,
)
from spark_jobs.operators.aggregation.daily import DailyTimes
from spark_jobs.operators.aggregation.firing import Firing, Maker
from spark_jobs.operators.aggregation.formats import formats
from spark_jobs.operators.aggregation.keying import Keying
from spark_jobs.operators.aggregation.scripts.scripts import Answer, Scripts
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.aggregation.windows import StepContext, Window, WindowsOfKey, WindowState
from spark_jobs.operators.step import (
    NEVER,
    Failed,
    Input,
    Late,
    StepResult,
    believed,
    skipped,
)

_CATCHING_UP = 60_000
"""How long a daily firing waits for a source that lags."""
_KEEPING = {"continue", "fire"}


class _Arrival(NamedTuple):
    """A record on its way into a window."""

    record: Input
    event: Any
    size: int


class Aggregation:
    """
    The operator `aggregation`; `value` of its input is the record.

    Raises:
        BadSettings: a schema is not valid.
    """

    def __init__(self, settings: AggregationSettings, scripts: Scripts) -> None:
        step = settings.step
        self._scripts, self._trigger = scripts, step.trigger
        self._is_full = step.state_full
        self._count = step.trigger.count if isinstance(step.trigger, CountTrigger) else NEVER
        self._counts = isinstance(step.trigger, CountTrigger)
        self._asks = step.trigger.type == "dsl"
        self._gap = step.trigger.timeout if isinstance(step.trigger, Gapped) else NEVER
        is_timed = isinstance(step.trigger, Gapped) and step.trigger.should_fire_at_processing_time
        self._first = self._gap if is_timed else NEVER
        self._times = DailyTimes(step.trigger)
        self._most_empty = getattr(step.trigger, "max_empty_intervals", 1)
        self._forget = NEVER if step.forget_after is None else step.forget_after
        self._max_ahead = NEVER if step.max_ahead is None else step.max_ahead
        decode = formats.reading(settings)
        self.keyed = Keying(step.key, scripts, decode).keyed
        self.folds = settings.folds
        self._most = NEVER if self.folds else step.max_window_bytes
        self._maker = Maker(settings, scripts, decode)
        self._chunks: Chunks = InMemory()

    @staticmethod
    def start() -> WindowState:
        return WindowState()

    def keep_in(self, chunks: Chunks) -> None:
        """Keep the events of large windows in `chunks`, which is stored with the state."""
        self._chunks = chunks

    def step(
        self, state: WindowState, records: Sequence[Input], now: int, *, behind: bool = False
    ) -> StepResult[WindowState]:
        turn = StepContext(now, [], {}, [])
        if now < state.latest:
            self._go_back(state, now)
        state.latest, state.daily = now, self._times.said
        if behind:
            state.behind_at = now
        else:
            self._wall(state, turn)
        for record, (event, key) in zip(
            records, self.keyed([each.value for each in records]), strict=True
        ):
            if isinstance(key, DovecoteError):
                turn.outputs.append(Failed(record, str(key)))
            elif key is None:
                turn.outputs.append(skipped(record, "no key"))
            else:
                self._record(
                    state, record if key == record.key else record._replace(key=key), event, turn
                )
        for key in turn.large:
            held = state.keys.get(key)
            if held is not None and held.window is not None:
                put_aside(state, held.window, self._chunks)
        self._drop(turn)
        return StepResult(state, turn.outputs, self._deadline(state))

    def finish(self, state: WindowState, now: int) -> StepResult[WindowState]:
        """Close what is open: no more records will come. Only a bounded source ends."""
        turn = StepContext(now, [], {}, [])
        for key, held in state.keys.items():
            self._fire(key, held, "end_of_input", turn)
        self._drop(turn)
        return StepResult(self.start(), turn.outputs, None)

    def restore(
        self, keys: dict[bytes, WindowsOfKey], behind_at: int, daily: str | None, windows: int
    ) -> WindowState:
        """
        Return the state that is made of these stored parts; changed times count at once.

        `daily` None: a state of the format before does not say it.
        """
        is_changed = daily is not None and daily != self._times.said
        state = WindowState(keys, behind_at, behind_at, self._times.said, windows)
        for key, held in keys.items():
            if is_changed and held.next < NEVER:
                held.next = self._times.rescheduled(held)
            touched = held.arrived if held.window is None else held.window.touched
            state.latest = max(state.latest, held.arrived, touched)
            self._set_alarm(state, key, held)
        return state

    def _go_back(self, state: WindowState, now: int) -> None:
        """Bound what a wrong clock has left by `now`."""
        state.behind_at = min(state.behind_at, now)
        for key, held in state.keys.items():
            held.arrived = min(held.arrived, now)
            held.clock = believed(held.clock, now, self._max_ahead)
            if (window := held.window) is not None:
                window.opened = min(window.opened, now)
                window.touched = min(window.touched, now)
            if held.next < NEVER:
                held.next = min(held.next, self._times.following(held, now))
            self._set_alarm(state, key, held)

    def _record(self, state: WindowState, record: Input, event: Any, turn: StepContext) -> None:  # noqa: ANN401
        key = record.key or b""
        held = state.keys.get(key)
        if held is None:
            held = WindowsOfKey()
        if self._gap < NEVER and not self._is_in_time(key, held, record, turn):
            return
        window = held.window
        size = 0 if self.folds else size_of(record.value)
        if window is not None and window.size + size > self._most:
            turn.outputs.append(Failed(record, self._full(window)))
            return
        if self._counts and not self.folds:
            state.keys[key] = held
            self._add(held, record, size, turn)
            if held.window is not None and held.window.count >= self._count:
                self._fire(key, held, "count", turn)
        else:
            self._take(state, held, _Arrival(record, event, size), turn)
        # While a window is open its alarm only moves later, so an early one does no harm.
        is_same = window is not None and held.window is window and self._gap < NEVER
        if not is_same and key in state.keys:
            self._set_alarm(state, key, held)

    def _take(
        self, state: WindowState, held: WindowsOfKey, arrived: _Arrival, turn: StepContext
    ) -> None:
        """Take a record about which a script, or a time of day, is asked."""
        record, key = arrived.record, arrived.record.key or b""
        try:
            answer = self._asked(held, arrived.event, record.value, turn.now)
            folded = None
            if self.folds:
                folded, cache = self._folded(held, arrived, answer.cache)
                answer = answer._replace(cache=cache)
        except DovecoteError as error:
            turn.outputs.append(Failed(record, str(error)))
            return
        state.keys[key] = held
        self._add(held, record, arrived.size, turn)
        if self.folds and held.window is not None:
            held.window.folded, held.window.last = folded, record.value[:3]
        self._act(key, held, answer, turn)

    def _is_in_time(
        self, key: bytes, held: WindowsOfKey, record: Input, turn: StepContext
    ) -> bool:
        """Close the window if `record` is too far after it; return False if it comes too late."""
        window, time = held.window, record.time
        if window is None or time < window.start - self._gap:
            if time + self._gap < held.clock:
                reason = "its window is closed"
                turn.outputs.append(Late(record, reason, held.clock - self._gap))
                return False
        elif time > window.end + self._gap:
            self._fire(key, held, "gap", turn)
        return True

    def _asked(self, held: WindowsOfKey, event: Any, source: Record, now: int) -> Answer:  # noqa: ANN401  # JSON
        """
        Ask the trigger about an event before it is part of the window, as the trigger may fail.
        """
        if self._asks:
            return self._scripts.trigger(event, source, now, held.cache)
        if isinstance(self._trigger, EventTimeTrigger) and held.window is None:
            text, cache = self._scripts.time(event, source, now, held.cache)
            held.next = self._times.read(text).after(now)
            held.at = text
            return Answer("continue", {}, cache)
        if self._times.daily is not None and held.next == NEVER:
            held.next = self._times.daily.after(now)
        return Answer("continue", {}, held.cache)

    def _folded(self, held: WindowsOfKey, arrived: _Arrival, cache: Any) -> tuple[Any, Any]:  # noqa: ANN401  # JSON
        """Return what the script folds an event into, and the cache."""
        window = held.window or Window(0, 0, 0, 0)
        return self._scripts.fold(
            window.folded,
            arrived.event,
            arrived.record.value,
            key=arrived.record.key or b"",
            count=window.count + 1,
            cache=cache,
        )

    def _full(self, window: Window) -> str:
        return (
            f"its window has {window.count} events of {window.size} bytes, and `maxWindowBytes` "
            f"is {self._most}: raise it, close windows earlier, or write the script as "
            "`def fold(acc, IN, Env)`, which keeps no events"
        )

    def _add(self, held: WindowsOfKey, record: Input, size: int, turn: StepContext) -> None:
        window, time, now = held.window, record.time, turn.now
        if window is None:
            window = held.window = Window(time, time, now, now)
        elif time > window.end:
            window.end = time
        elif time < window.start:
            window.start = time
        window.touched = now
        window.count += 1
        if not self.folds:
            window.events.append(record.value)
            window.size += size
            window.tail += size
            if window.tail > TAIL:
                turn.large[record.key or b""] = None
        held.arrived = now
        held.clock = max(held.clock, time)
        held.empty = 0

    def _act(self, key: bytes, held: WindowsOfKey, answer: Answer, turn: StepContext) -> None:
        held.cache = answer.cache
        if not self._asks:
            if held.window is not None and held.window.count >= self._count:
                self._fire(key, held, "count", turn)
            return
        status = answer.status if isinstance(answer.status, str) else None
        if status == "purge":
            window = held.window
            if window is not None:
                turn.outputs.extend(
                    self._maker.skipped(self._firing(key, window, "", turn), "purged")
                )
            self._close(held, turn)
        elif status not in _KEEPING:
            self._fire(key, held, "script", turn)
        elif status == "fire":
            self._fire(key, held, "script", turn, purges=False)

    def _fire(
        self,
        key: bytes,
        held: WindowsOfKey,
        reason: str,
        turn: StepContext,
        *,
        purges: bool = True,
    ) -> None:
        window = held.window
        if window is None:
            return
        window.revision += 1
        firing = self._firing(key, window, reason, turn, purges=purges)
        made, held.cache, is_done = self._maker.make(firing, held.cache)
        turn.outputs.extend(made)
        if purges or is_done:
            self._close(held, turn)

    def _firing(  # its parts
        self, key: bytes, window: Window, reason: str, turn: StepContext, *, purges: bool = True
    ) -> Firing:
        events = events_of(window, self._chunks)
        return Firing(
            key=key,
            reason=reason,
            start=window.start,
            end=window.end,
            age=turn.now - window.opened,
            revision=window.revision,
            events=events,
            count=window.count,
            folded=window.folded,
            last=events[-1][:3] if events else window.last,
            is_last=purges,
        )

    def _close(self, held: WindowsOfKey, turn: StepContext) -> None:
        if held.window is not None and held.window.chunks:
            turn.dropped.append((held.window.number, held.window.chunks))
        held.window = None
        if not self._is_full:
            held.cache = {}

    def _drop(self, turn: StepContext) -> None:
        """Drop the chunks of closed windows, after all that may fail: this cannot be undone."""
        for each in turn.dropped:
            self._chunks.drop(*each)

    def _wall(self, state: WindowState, turn: StepContext) -> None:
        """Do what is due by the wall clock."""
        for bound, key in state.waits.due(turn.now):
            held = state.keys.get(key)
            if held is None:
                continue
            moment = self._moment(state, held)
            if moment > bound:  # something has come since
                state.waits.set(key, moment)
            else:
                self._due(state, key, held, turn)

    def _due(self, state: WindowState, key: bytes, held: WindowsOfKey, turn: StepContext) -> None:
        if self._gap < NEVER:
            if held.window is None:
                del state.keys[key]
                return
            by_gap = held.window.touched + self._gap
            is_first = held.window.opened + self._first < by_gap
            self._fire(key, held, "first_timeout" if is_first else "gap", turn)
        else:
            held.empty = 0 if held.window is not None else held.empty + 1
            if held.empty >= self._most_empty:
                del state.keys[key]
                return
            # All events that came on days when the job was down are in this one window.
            passed = held.next if held.window is None else max(held.next, turn.now)
            self._fire(key, held, "time", turn)
            held.next = self._times.following(held, passed)
        self._set_alarm(state, key, held)

    def _moment(self, state: WindowState, held: WindowsOfKey) -> int:
        behind_at = state.behind_at
        if self._gap == NEVER:
            is_caught_up = held.next > behind_at
            return held.next if is_caught_up else behind_at + _CATCHING_UP
        window = held.window
        if window is None:
            return min(NEVER, max(held.arrived, behind_at) + self._forget)
        by_gap = max(window.touched, behind_at) + self._gap
        return min(by_gap, max(window.opened, behind_at) + self._first)

    def _set_alarm(self, state: WindowState, key: bytes, held: WindowsOfKey) -> None:
        moment = self._moment(state, held)
        if moment < NEVER:
            state.waits.set(key, moment)

    def _deadline(self, state: WindowState) -> int | None:
        first = state.waits.first()
        if first is None:
            return None
        # Right after a batch of a source that lags, another may follow.
        return max(first, state.behind_at + min(self._gap, self._forget, _CATCHING_UP))
