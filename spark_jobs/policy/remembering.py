"""
Remove and count duplicates of records from earlier batches before the policy runs.

Like the stateful operators, this runs in groups that are buckets of keys. It needs no timer:
nothing becomes due, and old entries are forgotten when the next records come.
"""

import marshal
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from dedup.rules.policies.memory import Memory, Seen
from outbox import envelope
from outbox.kafka import headers_of
from spark_jobs.errors import StateTooLarge
from spark_jobs.operators.changes import Delta
from spark_jobs.policy.stage import StageConfig, Taken, settle
from spark_jobs.query import source
from spark_jobs.query.batch import SCHEMA as REPORT
from spark_jobs.query.batch import Batch, BatchReport, partition_id
from spark_jobs.rows import packets
from spark_jobs.rows.garbage import collect_rarely, rarely_collecting, spare
from spark_jobs.rows.homes import spread
from spark_jobs.rows.packets import BucketRows, Pack
from spark_jobs.rows.records import Message, Shipped
from spark_jobs.sink.markers import Counts
from spark_jobs.sink.sink import BatchInput, SinkConfig
from spark_jobs.stateful.parts import PART, PART_NUMBER, PARTS_NAME, Kept, Stored

NOW = "now"
"""A column with Spark's clock of the micro-batch, in milliseconds."""
_SCHEMA = (
    "bucket int, packet binary, taken long, duplicates long, newest long, known long, bytes long, "
    "expired long, size long"
)
_kept = Kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberConfig:
    """The settings of the memory; goes to the executors."""

    query: str
    within: int
    """In milliseconds."""
    buckets: Sequence[int]
    """The names of the buckets."""
    max_bucket_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryCodec:
    """The bytes of memories."""

    within: int
    """In milliseconds."""
    name: str = "memory"

    def encode(self, memory: Memory) -> bytes:
        return memory.encode()

    def decode(self, data: bytes) -> Memory:
        return Memory.decode(self.within, data)

    def delta(self, memory: Memory) -> Delta | None:
        found = memory.delta()
        return None if found is None else Delta(*found)

    def apply(self, memory: Memory, data: bytes) -> None:
        memory.apply(data)

    def settle(self, memory: Memory, *, is_all: bool) -> None:
        memory.settle(is_all=is_all)

    def count(self, memory: Memory) -> int:
        return len(memory)


def pack(config: RememberConfig) -> Pack:
    """Return how the tasks that read pack for the memory."""
    return Pack(config.buckets, ByIdentity())


def passed(packed: DataFrame, config: RememberConfig) -> DataFrame:
    """Return the rows that pass, one packet per bucket, with Spark's clock."""
    clock = source.clock().alias(NOW)
    found = (
        packed.select("*", clock)
        .groupBy(packets.BUCKET)
        .transformWithStateInPandas(
            statefulProcessor=Remembering(config),
            outputStructType=_SCHEMA,
            outputMode="Append",
            timeMode="None",
        )
    )
    return found.select("*", clock)


@dataclass(frozen=True, slots=True)
class ByIdentity:
    """Gives the records of a key one bucket, and so the duplicates of a record without a key."""

    def __call__(self, partition: int, messages: Sequence[Message], buckets: int) -> Sequence[int]:
        keys = [each.key() for each in messages]
        for row, message in enumerate(messages):
            if keys[row] is None:
                keys[row] = dict(reversed(headers_of(message))).get(envelope.ID) or (
                    f"{message.topic()}/{partition}/{message.offset()}".encode()
                )
        return spread(keys, buckets, otherwise=partition)


class Remembering(StatefulProcessor):
    """Lets the records of each bucket pass that are no duplicates."""

    def __init__(self, config: RememberConfig) -> None:
        self._config = config

    def init(self, handle: StatefulProcessorHandle) -> None:
        collect_rarely()
        self._state = handle.getValueState("memory", "memory binary")
        config = self._config
        self._stored = Stored(
            MemoryCodec(config.within),
            handle.getMapState(PARTS_NAME, PART_NUMBER, PART),
            _kept,
            (config.query, config.within),
        )

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,  # noqa: ANN401  # a tuple of the grouping columns
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: ARG002, N803  # Spark's name; there are none
    ) -> Iterator[pd.DataFrame]:
        frames = list(rows)
        packed = [packet for frame in frames for packet in frame["packet"]]
        now = int(frames[0][NOW].iloc[0])
        found = packets.unpack(packed, recent=0, ahead=now, by_offset=True, with_headers=False)
        yield self._passed(key[0], found, now)

    def close(self) -> None:
        """Exclude the memories that this worker keeps from garbage collection."""
        spare()

    def _passed(self, bucket_: int, found: BucketRows, now: int) -> pd.DataFrame:
        value = self._state.get()
        before = None if value is None else bytes(value[0])
        memory: Memory = (
            Memory(self._config.within) if before is None else self._stored.read(bucket_, before)
        )
        repeated = list(memory.duplicates(_seen(found), now))
        most = self._config.max_bucket_bytes
        writing = self._stored.writing(memory, before, most)
        if writing.size > most:
            raise StateTooLarge(self._too_large(bucket_, writing.size))
        self._stored.write(bucket_, memory, writing)
        self._state.update((writing.value,))
        rest = [row for row, is_repeated in zip(found, repeated, strict=True) if not is_repeated]
        return pd.DataFrame(
            {
                "bucket": [bucket_],
                "packet": [marshal.dumps((dict(found.ids), rest))],
                "taken": [len(rest)],
                "duplicates": [len(repeated) - len(rest)],
                "newest": [found.newest],
                "known": [len(memory)],
                "bytes": [writing.size],
                "expired": [found.expired],
                "size": [found.size],
            }
        )

    def _too_large(self, bucket_: int, size: int) -> str:
        return (
            f"the memory of bucket {bucket_} has {size} bytes, more than "
            f"`state.max_bucket_bytes` ({self._config.max_bucket_bytes}): remember for a shorter "
            "time, or raise the limit; more buckets need a new checkpoint"
        )


def _seen(found: BucketRows) -> Iterator[Seen]:
    rows = Shipped(list(found), found.ids)
    for row, (topic, partition, _, time, *_) in enumerate(found):
        yield Seen(rows.remembered(row), time, (topic, partition))


DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberingStage:
    """The stage of a job after its memory."""

    config: StageConfig

    @property
    def sink(self) -> SinkConfig:
        return self.config.sink

    @property
    def partitions(self) -> int:
        return self.config.partitions

    def run(self, rows: DataFrame, batch: Batch) -> list[BatchReport]:
        """
        Handle and write the rows that pass; no shuffle is needed, because a key has one bucket.
        """
        tasks = rows.mapInArrow(RememberingTask(self.config, batch), REPORT)
        return [BatchReport.decode(row["report"]) for row in tasks.collect()]


class RememberingTask:
    """
    Handles and writes the rows that the buckets of one shuffle partition let pass.

    It runs in the task that has used their memories. If the task ends before Spark has stored
    them, the batch is run again with the old ones, for which the same records are duplicates.
    """

    def __init__(self, config: StageConfig, batch: Batch) -> None:
        self._config, self._batch = config, batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            found = [row for batch in batches for row in batch.to_pylist()]
            if not found:
                return
            report = self._report(found, partition_id())
        yield pa.RecordBatch.from_pydict({"report": [report.encode()]})

    def _report(self, found: list[dict[str, Any]], partition: int) -> BatchReport:
        duplicates = sum(row["duplicates"] for row in found)
        before = Counts(rows=duplicates, skipped={DUPLICATE: duplicates} if duplicates else {})
        packed = [marshal.loads(each["packet"]) for each in found]  # noqa: S302  # from our own task
        rows = [row for _, of in packed for row in of]
        ids = {topic: id_ for known, _ in packed for topic, id_ in known.items()}
        rows.sort(key=itemgetter(0, 1, 2))
        report = BatchReport(partition=partition, counts=before)
        if rows:
            batch = self._batch.at(found[0][NOW])
            taken = Taken(rows=Shipped(rows, ids), newest=0, before=before)
            report = settle(self._config, batch, partition, given=given(rows), take=lambda: taken)
        return replace(
            report,
            expired=sum(row["expired"] for row in found),
            size=sum(row["size"] for row in found),
            newest=max(row["newest"] for row in found),
            buckets={str(row["bucket"]): [row["known"], 0, row["bytes"]] for row in found},
        )


def given(rows: Sequence[tuple[Any, ...]]) -> BatchInput:
    """Return what a marker says of `rows`, which are in the order of their places."""
    digest = blake2b(digest_size=16)
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for (topic, partition), of in groupby(rows, itemgetter(0, 1)):
        offsets, times = zip(*((row[2], row[3]) for row in of), strict=True)
        ranges.setdefault(topic, {})[partition] = offsets[0], offsets[-1]
        digest.update(f"{topic}/{partition}/{len(offsets)}\n".encode())
        digest.update(struct.pack(f"<{len(offsets)}q{len(times)}q", *offsets, *times))
    return BatchInput(digest=digest.hexdigest(), ranges=ranges)
