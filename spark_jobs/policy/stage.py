"""The stage that does the work: shuffle by key, then one pass that handles and writes."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the idiom of PySpark

from dedup.retries.backoff import Backoff
from dedup.settings.policy import PolicySettings
from spark_jobs.errors import JobError
from spark_jobs.policy.evaluation import evaluate, load
from spark_jobs.policy.router import Router
from spark_jobs.query.batch import SCHEMA, Batch, BatchReport, partition_id
from spark_jobs.rows import columns
from spark_jobs.rows.columns import Rows
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.sink import sink
from spark_jobs.sink.markers import Counts, Turn
from spark_jobs.sink.outgoing import Evaluation, Topics
from spark_jobs.sink.sink import BatchInput, Settled, SinkConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """The common settings of all batches of a query; goes to the executors."""

    operator: PolicySettings
    topics: Topics
    backoff: Backoff
    sink: SinkConfig
    partitions: int

    def run(self, rows: DataFrame, batch: "Batch") -> "list[BatchReport]":
        return run(rows, self, batch)


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


def run(rows: DataFrame, config: StageConfig, batch: Batch) -> list[BatchReport]:
    """Handle and write one micro-batch; return a report of each partition that has rows."""
    tasks = shuffled(rows, config.partitions).mapInArrow(Task(config, batch), SCHEMA)
    return [BatchReport.decode(row["report"]) for row in tasks.collect()]


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

    def _report(self, rows: Rows, partition: int, before: Counts | None = None) -> BatchReport:
        """Settle `rows`; `before` counts the rows that were removed earlier."""
        try:
            settled = self._settle(rows, partition, before or Counts())
        except JobError as error:
            # Returned as a value: Spark would wrap an exception in a page of stack traces, and
            # retry to no avail.
            return BatchReport(partition=partition, error=type(error).__name__, message=str(error))
        return BatchReport(
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
            BatchInput(digest=rows.digest(), ranges=rows.ranges()),
            config=config.sink,
            evaluate=evaluated,
            replace_poison=router.unwritable,
            adopt=batch.adopt,
            newest=batch.writers.get(partition, ""),
        )
