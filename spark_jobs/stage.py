"""The stage that does the work: shuffle by key, then one pass that handles and writes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark
from pyspark.sql.types import StringType, StructField, StructType

from dedup.backoff import Backoff
from dedup.settings import PolicySettings
from spark_jobs import columns, sink
from spark_jobs.columns import Rows
from spark_jobs.errors import REPORTED, JobError, QueryFailed
from spark_jobs.evaluation import Evaluation, evaluate, load
from spark_jobs.garbage import rarely_collecting
from spark_jobs.known_alarms import Alarms
from spark_jobs.markers import Counts, Turn
from spark_jobs.outgoing import Router, Topics
from spark_jobs.sink import Input, Settled, SinkConfig

# An object, because Java would parse a text for each batch.
SCHEMA = StructType([StructField("report", StringType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """The common settings of all batches of a query; goes to the executors."""

    operator: PolicySettings
    topics: Topics
    backoff: Backoff
    sink: SinkConfig
    partitions: int

    def run(self, rows: DataFrame, batch: "Batch") -> "list[Report]":
        return run(rows, self, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch."""

    query: str
    number: int
    now: int
    """
    The wall clock when it began, in milliseconds; if the rows have Spark's clock, that counts.
    """
    adopt: bool = False
    writers: Mapping[int, str] = field(default_factory=dict)
    """The names of the shuffle partitions' latest writers, as far as the driver knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A task's report to the driver: the results of its turn, or why it could not be written."""

    partition: int
    counts: Counts = field(default_factory=Counts)
    replayed: bool = False
    newest: int = 0
    """The newest timestamp among its rows, in milliseconds."""
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By stepped bucket: its keys, open items, and bytes."""
    alarms: Alarms = field(default_factory=dict)
    """When Spark will call the stepped buckets."""
    writer: str = ""
    """The name of the writer that settled it; empty: there was nothing to settle."""
    error: str | None = None
    """The name of the error, one of `REPORTED`."""
    message: str = ""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        fields = json.loads(text)
        return cls(counts=Counts(**fields.pop("counts")), **fields)

    def exception(self) -> JobError | None:
        """Return the error as it was raised in the task."""
        return None if self.error is None else REPORTED.get(self.error, QueryFailed)(self.message)


class Stage(Protocol):
    """The handling of a micro-batch's rows."""

    @property
    def sink(self) -> SinkConfig: ...
    @property
    def partitions(self) -> int: ...

    def run(self, rows: DataFrame, batch: Batch) -> list[Report]:
        """Handle and write one micro-batch; return a report of each partition."""


def shuffled(rows: DataFrame, partitions: int) -> DataFrame:
    """
    Return the columns of `rows` for the tasks, with each key in one partition and in order.

    Rows without a key are spread by their places. Everything here depends on the rows only, so a
    batch that is run again has the same partitions, in the same order.
    """
    place = F.xxhash64("topic", "partition", "offset")
    spread = F.when(F.col("key").isNull(), place)
    clock = [columns.NOW] if columns.NOW in rows.columns else []
    return (
        rows.select(*columns.COLUMNS, *clock)
        .repartition(partitions, F.col("key"), spread)
        .sortWithinPartitions("key", "topic", "partition", "offset")
    )


def run(rows: DataFrame, config: StageConfig, batch: Batch) -> list[Report]:
    """Handle and write one micro-batch; return a report of each partition that has rows."""
    tasks = shuffled(rows, config.partitions).mapInArrow(Task(config, batch), SCHEMA)
    return [Report.decode(row["report"]) for row in tasks.collect()]


class Task:
    """Handles and writes one shuffle partition, on an executor."""

    def __init__(self, config: StageConfig, batch: Batch) -> None:
        self._config, self._batch = config, batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            rows = columns.read(batches)
            if rows is None:
                return
            report = self._report(rows, partition_id())
        yield pa.RecordBatch.from_pydict({"report": [report.encode()]})

    def _report(self, rows: Rows, partition: int, before: Counts | None = None) -> Report:
        """Settle `rows`; `before` counts the rows that were removed earlier."""
        try:
            settled = self._settle(rows, partition, before or Counts())
        except JobError as error:
            # Returned as a value: Spark would wrap an exception in a page of stack traces, and
            # retry to no avail.
            return Report(partition=partition, error=type(error).__name__, message=str(error))
        return Report(
            partition=partition,
            counts=settled.counts,
            replayed=settled.replayed,
            newest=max(rows.timestamps),
            writer=settled.writer,
        )

    def _settle(self, rows: Rows, partition: int, before: Counts) -> Settled:
        config, batch = self._config, self._batch
        now = rows.now or batch.now
        router = Router(topics=config.topics, backoff=config.backoff, now=now)

        def evaluated() -> Evaluation:
            found = evaluate(rows, load(config.operator), router)
            return found._replace(counts=found.counts + before)

        return sink.settle(
            Turn(
                query=batch.query,
                batch=batch.number,
                partition=partition,
                partitions=config.partitions,
            ),
            Input(digest=rows.digest(), ranges=rows.ranges()),
            config=config.sink,
            evaluate=evaluated,
            replace_poison=router.unwritable,
            adopt=batch.adopt,
            newest=batch.writers.get(partition, ""),
        )


def partition_id() -> int:
    """Return the shuffle partition on which this task works."""
    context = TaskContext.get()
    if context is None:
        msg = "a task runs on Spark's executors only"
        raise QueryFailed(msg)
    return context.partitionId()
