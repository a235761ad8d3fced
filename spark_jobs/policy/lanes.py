"""
Run a batch of a job without state: tasks read ranges of offsets, decide, and write.

A lane is a set of keys with transactions of its own; a partition belongs to lane p modulo the
number of lanes. If keys lie where Kafka's partitioner puts them, a task reads the partitions of
its lane and decides at once. Otherwise tasks read and pack what they have read by lane, and other
tasks decide. In both ways no record becomes an object of the JVM.
"""

import logging
import marshal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from outbox.timestamps import milliseconds
from spark_jobs.errors import JobError
from spark_jobs.failures import failure
from spark_jobs.policy.grouping import PARTITIONS, SHUFFLE, Choice
from spark_jobs.policy.stage import StageConfig, Taken, settle
from spark_jobs.query.batch import Batch, BatchReport
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.rows.homes import homes
from spark_jobs.rows.records import Messages, Shipped, TopicIds, blocks, shipped
from spark_jobs.sink.sink import BatchInput, SinkConfig
from spark_jobs.source import offsets
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import Fetched, fetch
from spark_jobs.source.log import BatchLog, Plan
from spark_jobs.source.offsets import Range

_log = logging.getLogger("dovecote.spark")

Packet: TypeAlias = tuple[int, bytes]
"""A lane with what one task has read for it: chunks of records, or an error's name and message."""


class Lanes:
    """Runs the batches of one query, from its plan to the reports of its tasks."""

    def __init__(
        self,
        spark: SparkSession,
        config: StageConfig,
        source: SourceConfig,
        *,
        log: BatchLog,
        choice: Choice,
    ) -> None:
        self._spark, self._config, self._source = spark, config, source
        self._plans, self._choice = log, choice
        self._said = ""

    @property
    def sink(self) -> SinkConfig:
        return self._config.sink

    @property
    def partitions(self) -> int:
        return self._config.partitions

    def run(self, rows: DataFrame, batch: Batch) -> list[BatchReport]:  # noqa: ARG002  # Spark's source yields none
        """Handle and write one micro-batch; return a report of each lane that has anything."""
        plan = self._plans.plan(batch.number)
        if not plan.ranges:
            return []
        way = batch.way or self._choice.choose(plan.partitions)
        batch = batch.at(plan.now)
        task = Turns(self._config, self._source, batch, plan.digest, plan.ids, way)
        try:
            reports = self._tasks(task, plan, way).collect()
        except Py4JJavaError as error:
            raise failure(str(error)) from error
        found = [BatchReport.decode(text) for text in reports]
        self._learn(found, way)
        return found

    def _tasks(self, task: "Turns", plan: Plan, way: str) -> "RDD[str]":
        spark, lanes = self._spark.sparkContext, self._config.partitions
        if way == PARTITIONS:
            parts = sorted(offsets.by_lane(plan.ranges, lanes).items())
            return spark.parallelize(parts, len(parts)).mapPartitions(task.read_and_settle)
        shares = offsets.shared_out(plan.ranges, max(lanes, spark.defaultParallelism))
        packed = spark.parallelize(shares, len(shares)).mapPartitions(task.read_and_pack)
        return packed.partitionBy(lanes, int).mapPartitions(task.unpack_and_settle)

    def _learn(self, reports: Sequence[BatchReport], way: str) -> None:
        """Watch the producers' partitioner, and say when the way changes."""
        if any(report.error for report in reports):
            return
        misplaced = sum(report.misplaced for report in reports)
        self._choice.took(sum(report.counts.rows for report in reports), misplaced)
        if way == PARTITIONS and misplaced:
            _log.warning(
                "%d records lay in partitions where Kafka's partitioner does not put their keys: "
                "they went to the retry topic and come back. Either partitions were added, or a "
                'producer has another partitioner: set "murmur2_random" there, or spark.grouping '
                '= "shuffle" here',
                misplaced,
            )
        if way != self._said:
            _log.info("%s", _SAYINGS[way])
            self._said = way


_SAYINGS = {
    PARTITIONS: "each task reads whole partitions and decides: keys lie where Kafka puts them",
    SHUFFLE: "records are shuffled by key before they are decided (spark.grouping)",
}


@dataclass(frozen=True, slots=True)
class Turns:
    """Does the work of one batch's tasks, on an executor."""

    config: StageConfig
    source: SourceConfig
    batch: Batch
    digest: str
    ids: TopicIds
    way: str

    def read_and_settle(self, lanes: Iterable[tuple[int, list[Range]]]) -> Iterator[str]:
        """Read and decide all of each lane."""
        for lane, plan in lanes:
            with rarely_collecting():
                yield self._settled(lane, plan).encode()

    def read_and_pack(self, shares: Iterable[list[Range]]) -> Iterator[Packet]:
        """Read, and yield a packet for each lane."""
        for plan in shares:
            with rarely_collecting():
                try:
                    yield from self._packed(fetch(plan, self.source))
                except JobError as error:
                    # To every lane: none may go on with a part of its records.
                    told = marshal.dumps((type(error).__name__, str(error)))
                    yield from ((lane, told) for lane in range(self.config.partitions))

    def unpack_and_settle(self, packets: Iterable[Packet]) -> Iterator[str]:
        """Decide everything that came for one lane."""
        with rarely_collecting():
            lane, chunks = 0, []
            for lane, packet in packets:
                found = marshal.loads(packet)  # noqa: S302  # from our own task
                if isinstance(found, tuple):
                    yield BatchReport(partition=lane, error=found[0], message=found[1]).encode()
                    return
                chunks += found
            if chunks:
                yield self._decided(lane, chunks).encode()

    def _settled(self, lane: int, plan: list[Range]) -> BatchReport:
        def take() -> Taken:
            found = fetch(plan, self.source)
            parts = [each.messages for each in found if each.messages]
            return Taken(
                size=self._size(each.value() for part in parts for each in part),
                rows=Messages(
                    parts[0] if len(parts) == 1 else list(chain.from_iterable(parts)), self.ids
                ),
                newest=_newest(part[-1].timestamp()[1] for part in parts),
                here=(lane, self.config.partitions),
                expired=sum(each.expired for each in found),
            )

        return settle(self.config, self.batch, lane, given=self._input(plan), take=take)

    def _packed(self, found: Sequence[Fetched]) -> Iterator[Packet]:
        lanes = self.config.partitions
        packets: dict[int, list[Any]] = {}
        for (topic, partition, first, _), messages, expired in found:
            here = partition % lanes
            parts: dict[int, list[Any]] = {here: []}
            for block in blocks(messages):
                keys = [each.key() for each in block]
                keyed = list({key for key in keys if key is not None})
                of_key = dict(zip(keyed, homes(keyed, lanes), strict=True))
                for key, message in zip(keys, block, strict=True):
                    lane = here if key is None else of_key[key]
                    part = parts.get(lane)
                    if part is None:
                        part = parts[lane] = []
                    part.append(shipped(message))
            for lane, part in parts.items():
                gone = expired if lane == here else 0
                if part or gone:
                    packets.setdefault(lane, []).append((topic, partition, first, gone, part))
        for lane, packet in packets.items():
            yield lane, marshal.dumps(packet)

    def _decided(self, lane: int, chunks: list[Any]) -> BatchReport:
        lanes = self.config.partitions
        chunks.sort(key=lambda chunk: chunk[:3])

        def take() -> Taken:
            parts = [chunk[4] for chunk in chunks if chunk[4]]
            return Taken(
                size=self._size(row[5] for part in parts for row in part),
                rows=Shipped(list(chain.from_iterable(parts)), self.ids),
                newest=_newest(part[-1][3] for part in parts),
                misplaced=sum(len(chunk[4]) for chunk in chunks if chunk[1] % lanes != lane),
                expired=sum(chunk[3] for chunk in chunks),
            )

        seen = [
            Range(topic, partition, part[0][2], part[-1][2] + 1)
            for topic, partition, _, _, part in chunks
            if part
        ]
        return settle(self.config, self.batch, lane, given=self._input(seen), take=take)

    def _size(self, values: Iterable[bytes | None]) -> int:
        """Return the bytes of `values`, if the planner asks for them; None counts as one."""
        return 0 if self.source.most_bytes is None else sum(len(each or b"-") for each in values)

    def _input(self, plan: Iterable[Range]) -> BatchInput:
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for topic, partition, start, end in plan:
            ranges.setdefault(topic, {})[partition] = (start, end - 1)
        return BatchInput(digest=self.digest, ranges=ranges, way=self.way)


def _newest(timestamps: Iterable[int]) -> int:
    """Return the newest of the times that records say, in milliseconds; 0: none says any."""
    return max((milliseconds(each) or 0 for each in timestamps), default=0)
