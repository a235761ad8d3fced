"""
Host the stateful operators: buckets of keys in Spark's own stateful operator.

Spark's cost is per group, so a group is a bucket of keys, not a key: its state is one value, and
it has one timer. The clock is the batch's, which is the same when the batch is run again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from spark_jobs.errors import StateDamaged, StateTooLarge
from spark_jobs.operators import extent
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.careful import careful
from spark_jobs.operators.reading import (
    OperatorSettings,
    believable,
    many_reader,
    max_ahead,
    max_lag,
    read_columns,
)
from spark_jobs.operators.settings import PairingSettings, WindowedSettings
from spark_jobs.operators.step import NEVER, Ahead, Failed
from spark_jobs.operators.table import operator
from spark_jobs.rows import packets
from spark_jobs.rows.buckets import NONE
from spark_jobs.rows.contexts import contexts
from spark_jobs.rows.garbage import collect_rarely, spare
from spark_jobs.rows.packets import BucketRows, Pack
from spark_jobs.stateful.bucketing import bucketing
from spark_jobs.stateful.codec import OperatorCodec
from spark_jobs.stateful.outcome import OperatorTopics, Outcome, Reporter
from spark_jobs.stateful.parts import PART, PART_NUMBER, PARTS_NAME, Kept, Stored

SCHEMA = "outcome binary, alarm long"
_CONTEXTS = 4
"""The most trace contexts that a bucket reports of a batch."""
STATE_NAME = "bucket"
"""The name for Spark's state reader."""
_ADVICE = {
    "aggregation": "Forget keys earlier (`forgetAfter`), keep less in `Env.cache`",
    "delay": "Let records wait for less long",
}
_ADVICE_OTHERWISE = "Close earlier (`close_after`, `grace`, `forget_after`)"
_STATE = "state binary, alarm long"
CHUNKS_NAME = "chunks"
_PLACE, _CHUNK = "window long, number long", "events binary"
# Batches begin a varying number of milliseconds after the beat of their trigger. For operators
# they are on the beat; otherwise, timers set for a number of beats would miss every other one.
_TICK_MS = 100
_kept = Kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulConfig:
    """The settings of a stateful operator; goes to the executors."""

    operator: OperatorSettings
    topics: OperatorTopics
    query: str
    buckets: Sequence[int]
    """The names of the buckets."""
    max_bucket_bytes: int
    traced: bool = False
    """Whether steps report where some of their records come from."""


def pack(config: StatefulConfig) -> Pack:
    """Return how the tasks that read pack for the operator."""
    settings = config.operator
    return Pack(
        config.buckets, bucketing(settings), max_lag(settings), max_ahead(settings), wakes=True
    )


def outcomes(packed: DataFrame, config: StatefulConfig) -> DataFrame:
    """
    Return the operator's outcomes for the rows in packets: one row for each step of a bucket.

    Each row also has the time at which Spark will call the bucket.
    """
    return packed.groupBy(packets.BUCKET).transformWithStateInPandas(
        statefulProcessor=Bucket(config),
        outputStructType=SCHEMA,
        outputMode="Append",
        timeMode="ProcessingTime",
    )


class _StoredChunks:
    """The chunks of the bucket that is being stepped, in Spark's store."""

    def __init__(self, stored: MapState) -> None:
        self._stored = stored

    def read(self, window: int, number: int) -> bytes:
        found = self._stored.getValue((window, number))
        if found is None:
            msg = (
                f"chunk {number} of window {window} is missing from the state: the checkpoint is "
                "damaged. Go on from a copy of it, or begin with a new checkpoint"
            )
            raise StateDamaged(msg)
        return bytes(found[0])

    def write(self, window: int, number: int, data: bytes) -> None:
        self._stored.updateValue((window, number), (data,))

    def drop(self, window: int, count: int) -> None:
        for number in range(count):
            self._stored.removeKey((window, number))


class Bucket(StatefulProcessor):
    """Steps the operator of one bucket after the other."""

    def __init__(self, config: StatefulConfig) -> None:
        self._config = config

    def init(self, handle: StatefulProcessorHandle) -> None:
        # Permanently: this process does nothing else, and each return to the usual thresholds
        # would start a search through everything that the last bucket has made.
        collect_rarely()
        config = self._config
        self._handle = handle
        self._state = handle.getValueState(STATE_NAME, _STATE)
        self._operator = operator(config.operator)
        if isinstance(self._operator, Aggregation | Guarded):
            self._operator.keep_in(_StoredChunks(handle.getMapState(CHUNKS_NAME, _PLACE, _CHUNK)))
        self._read = many_reader(config.operator)
        lag = max_lag(config.operator)
        self._max_lag = NEVER if lag is None else lag
        self._max_ahead = max_ahead(config.operator)
        codec = OperatorCodec(self._operator)
        parts = handle.getMapState(PARTS_NAME, PART_NUMBER, PART) if codec.has_parts else None
        # The alarms in a state depend on the operator's settings.
        owner = config.query, repr(config.operator)
        self._stored = Stored(codec, parts, _kept, owner)
        self._reporter = Reporter(config.operator, config.topics, config.query)
        windowed = isinstance(config.operator, WindowedSettings)
        self._with_headers = not windowed
        self._advice = _ADVICE.get(config.operator.type, _ADVICE_OTHERWISE)
        self._by_offset = (
            isinstance(config.operator, WindowedSettings)
            and config.operator.stream_time == "per_partition"
            and not isinstance(config.operator, PairingSettings)
        )

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,  # noqa: ANN401  # a tuple of the grouping columns
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803  # Spark's name
    ) -> Iterator[pd.DataFrame]:
        now = timerValues.getCurrentProcessingTimeInMs()
        found = packets.unpack(
            (packet for frame in rows for packet in frame["packet"]),
            recent=now - self._max_lag,
            by_offset=self._by_offset,
            with_headers=self._with_headers,
            ahead=NEVER if self._max_ahead is None else now + self._max_ahead,
        )
        is_woken = found.is_woken and self._state.get() is not None
        if found or found.is_behind or found.expired or is_woken:
            yield from self._step(key[0], found, now)

    def handleExpiredTimer(  # noqa: N802  # Spark's name
        self,
        key: Any,  # noqa: ANN401  # as above
        timerValues: TimerValues,  # noqa: N803  # Spark calls it with these names
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        now = timerValues.getCurrentProcessingTimeInMs()
        yield from self._step(
            key[0], BucketRows(), now, fired=expiredTimerInfo.getExpiryTimeInMs()
        )

    def close(self) -> None:
        """Exclude the states that this worker keeps from garbage collection."""
        spare()

    def _step(
        self, bucket_: int, rows: BucketRows, now: int, *, fired: int | None = None
    ) -> Iterator[pd.DataFrame]:
        outcome, alarm = self._outcome(bucket_, rows, now, fired)
        yield pd.DataFrame({"outcome": [outcome.encode()], "alarm": [alarm]})

    def _outcome(
        self, bucket_: int, rows: BucketRows, now: int, fired: int | None
    ) -> tuple[Outcome, int]:
        found = self._state.get()
        before, alarm = (None, NONE) if found is None else (bytes(found[0]), found[1])
        state = self._operator.start() if before is None else self._stored.read(bucket_, before)
        most = self._config.max_bucket_bytes
        failed: list[Failed] = []
        ahead: list[Ahead] = []
        inputs = read_columns(self._read, rows.columns, failed)
        inputs = believable(inputs, now, self._max_ahead, ahead)
        try:
            step = self._operator.step(state, inputs, ticked(now), behind=rows.is_behind)
            writing = self._stored.writing(step.state, before, most)
        except StateDamaged:  # no record is to blame
            raise
        except Exception as error:  # noqa: BLE001  # whatever a record may cause
            whole = None if before is None else self._stored.whole(bucket_, before)
            step = careful(
                self._operator, whole, inputs, ticked(now), behind=rows.is_behind, cause=error
            )
            writing = self._stored.writing(step.state, before, most)
        if writing.size > most:
            raise StateTooLarge(self._too_large(bucket_, writing.size))
        alarm = self._set_alarm(alarm, step.deadline, now, fired)
        self._stored.write(bucket_, step.state, writing)
        self._state.update((writing.value, alarm))
        outcome = Outcome(
            bucket=bucket_,
            number=0 if fired is None else 1,
            rows=len(rows),
            newest=rows.newest,
            expired=rows.expired,
            read=rows.size,
            keys=extent.keys(step.state),
            open=extent.opened(step.state),
            size=writing.size,
            contexts=self._contexts(rows),
        )
        self._reporter.report([*failed, *ahead, *step.outputs], outcome, rows, now)
        return outcome, alarm

    def _contexts(self, rows: BucketRows) -> list[str]:
        if not self._config.traced:
            return []
        return contexts(len(rows), lambda row: rows.whole(row).headers, _CONTEXTS)

    def _set_alarm(self, alarm: int, deadline: int | None, now: int, fired: int | None) -> int:
        """Set Spark's timer for `deadline`; return when it will fire, which may be earlier."""
        if alarm == fired:
            alarm = NONE  # Spark removes it by itself
        if alarm != NONE and alarm <= now:
            self._handle.deleteTimer(alarm)  # what was due then has just been done
            alarm = NONE
        if deadline is None:
            return alarm
        # Spark also removes a timer that its own handler sets for the same moment. And a record
        # may contain a time that Spark cannot represent.
        wanted = min(NEVER, max(deadline, now + 1, 0 if fired is None else fired + 1))
        if alarm != NONE and alarm <= wanted:
            return alarm
        if alarm != NONE:
            self._handle.deleteTimer(alarm)
        self._handle.registerTimer(wanted)
        return wanted

    def _too_large(self, bucket_: int, size: int) -> str:
        return (
            f"the state of bucket {bucket_} has {size} bytes, more than `state.max_bucket_bytes` "
            f"({self._config.max_bucket_bytes}): it holds too many keys at once. {self._advice}, "
            "or raise the limit; more buckets need a new checkpoint"
        )


def ticked(now: int) -> int:
    """Return the operators' clock at `now`, which ticks in tenths of a second."""
    return now - now % _TICK_MS
