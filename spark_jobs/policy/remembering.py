"""
Remove and count duplicates of records from earlier batches before the policy runs.

Like the stateful operators, this runs in groups that are buckets of keys. It needs no timer:
nothing becomes due, and old entries are forgotten when the next records come.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from dedup.rules.policies.memory import Memory, Seen
from outbox import envelope
from spark_jobs.errors import StateTooLarge
from spark_jobs.policy.stage import StageConfig, Task
from spark_jobs.query import source
from spark_jobs.query.batch import SCHEMA as REPORT
from spark_jobs.query.batch import Batch, BatchReport, partition_id
from spark_jobs.rows import columns, packets
from spark_jobs.rows.columns import Rows
from spark_jobs.rows.garbage import collect_rarely, rarely_collecting, spare
from spark_jobs.rows.packets import Pack
from spark_jobs.sink.markers import Counts

_SCHEMA = (
    "bucket int, packet binary, taken long, duplicates long, newest long, known long, bytes long"
)
# A worker keeps the memories that it used last, each with the bytes that Spark has of it.
_KEPT = 64
_Kept: TypeAlias = tuple[str, int, int]
"""The query, how long it remembers, and the bucket."""
_memories: OrderedDict[_Kept, tuple[bytes, Memory]] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberConfig:
    """The settings of the memory; goes to the executors."""

    query: str
    within: int
    """In milliseconds."""
    buckets: Sequence[int]
    """The names of the buckets."""
    max_bucket_bytes: int


def passed(rows: DataFrame, config: RememberConfig) -> DataFrame:
    """Return the rows that pass, one packet per bucket, with Spark's clock."""
    packed = rows.select(
        *packets.COLUMNS,
        bucket(config.buckets).cast("int").alias(packets.BUCKET),
    ).mapInArrow(Pack(config.buckets, None), packets.SCHEMA)
    clock = source.clock().alias(columns.NOW)
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


def bucket(buckets: Sequence[int]) -> Column:
    """Return the bucket of a row: one for the rows of a key, and for duplicates without a key."""
    ids = F.filter("headers", lambda each: each["key"] == envelope.ID)
    place = F.concat_ws("/", "topic", "partition", "offset").cast("binary")
    of = F.coalesce("key", F.get(ids, 0).getField("value"), place)
    number = F.pmod(F.xxhash64(of), F.lit(len(buckets))).cast("int")
    return F.element_at(F.array(*map(F.lit, buckets)), number + 1)


class Remembering(StatefulProcessor):
    """Lets the records of each bucket pass that are no duplicates."""

    def __init__(self, config: RememberConfig) -> None:
        self._config = config

    def init(self, handle: StatefulProcessorHandle) -> None:
        collect_rarely()
        self._state = handle.getValueState("memory", "memory binary")

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,  # noqa: ANN401  # a tuple of the grouping columns
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: ARG002, N803  # Spark's name; there are none
    ) -> Iterator[pd.DataFrame]:
        frames = list(rows)
        packed = [packet for frame in frames for packet in frame["packet"]]
        now = int(frames[0][columns.NOW].iloc[0])
        yield self._passed(key[0], _sorted(packed), now)

    def close(self) -> None:
        """Exclude the memories that this worker keeps from garbage collection."""
        spare()

    def _passed(self, bucket_: int, table: pa.Table, now: int) -> pd.DataFrame:
        memory = self._restored(bucket_)
        seen = columns.read(table.to_batches())
        if seen is None:  # a packet always has rows
            return pd.DataFrame()
        fresh = [not is_duplicate for is_duplicate in memory.duplicates(_seen(seen), now)]
        data = memory.encode()
        if len(data) > self._config.max_bucket_bytes:
            raise StateTooLarge(self._too_large(bucket_, len(data)))
        self._state.update((data,))
        _keep((self._config.query, self._config.within, bucket_), data, memory)
        rest = table.filter(pa.array(fresh))
        return pd.DataFrame(
            {
                "bucket": [bucket_],
                "packet": [_packet(rest)],
                "taken": [rest.num_rows],
                "duplicates": [len(fresh) - rest.num_rows],
                "newest": [max(seen.timestamps)],
                "known": [len(memory)],
                "bytes": [len(data)],
            }
        )

    def _restored(self, bucket_: int) -> Memory:
        config = self._config
        found = self._state.get()
        if found is None:
            return Memory(config.within)
        data = bytes(found[0])
        kept = _memories.pop((config.query, config.within, bucket_), None)
        if kept is not None and kept[0] == data:
            return kept[1]
        return Memory.decode(config.within, data)

    def _too_large(self, bucket_: int, size: int) -> str:
        return (
            f"the memory of bucket {bucket_} has {size} bytes, more than "
            f"`state.max_bucket_bytes` ({self._config.max_bucket_bytes}): remember for a shorter "
            "time, or raise the limit; more buckets need a new checkpoint"
        )


def _seen(rows: Rows) -> Iterator[Seen]:
    places = zip(rows.topics, rows.partitions, rows.offsets, strict=True)
    for identity, time, (topic, partition, offset) in zip(
        rows.identities, rows.timestamps, places, strict=True
    ):
        # The place of a record without an id is its identity, and no other record's.
        own = identity[0] != f"{topic}/{partition}/{offset}"
        yield Seen(identity if own else None, time, (topic, partition))


def _sorted(packed: Sequence[bytes]) -> pa.Table:
    """Return the rows in `packed` in the order of their offsets."""
    tables = [pa.ipc.open_stream(packet).read_all() for packet in packed]
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    return pa.concat_tables(tables).sort_by(order)


def _packet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packet: bytes = sink.getvalue().to_pybytes()
    return packet


def _keep(bucket_: _Kept, data: bytes, memory: Memory) -> None:
    _memories[bucket_] = data, memory
    while len(_memories) > _KEPT:
        _memories.popitem(last=False)


DUPLICATE = "duplicate"
_ORDER = [(name, "ascending") for name in ("key", "topic", "partition", "offset")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberingStage(StageConfig):
    """Like the stage of a job that remembers nothing, but after its memory."""

    def run(self, rows: DataFrame, batch: Batch) -> list[BatchReport]:
        """
        Handle and write the rows that pass; no shuffle is needed, because a key has one bucket.
        """
        tasks = rows.mapInArrow(RememberingTask(self, batch), REPORT)
        return [BatchReport.decode(row["report"]) for row in tasks.collect()]


class RememberingTask(Task):
    """
    Handles and writes the rows that the buckets of one shuffle partition let pass.

    It runs in the task that has used their memories. If the task ends before Spark has stored
    them, the batch is run again with the old ones, for which the same records are duplicates.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            found = [row for batch in batches for row in batch.to_pylist()]
            if not found:
                return
            duplicates = sum(row["duplicates"] for row in found)
            skipped = Counts(
                rows=duplicates, skipped={DUPLICATE: duplicates} if duplicates else {}
            )
            rows = columns.read(_unpacked(row["packet"] for row in found))
            if rows is None:
                report = BatchReport(partition=partition_id(), counts=skipped)
            else:
                now = found[0][columns.NOW]
                report = self._report(replace(rows, now=now), partition_id(), skipped)
            report = replace(
                report,
                newest=max(row["newest"] for row in found),
                buckets={str(row["bucket"]): [row["known"], 0, row["bytes"]] for row in found},
            )
        yield pa.RecordBatch.from_pydict({"report": [report.encode()]})


def _unpacked(found: Iterator[bytes]) -> list[pa.RecordBatch]:
    """Return the rows of all packets, with each key's rows together and in order."""
    tables = [pa.ipc.open_stream(packet).read_all() for packet in found]
    batches: list[pa.RecordBatch] = pa.concat_tables(tables).sort_by(_ORDER).to_batches()
    return batches
