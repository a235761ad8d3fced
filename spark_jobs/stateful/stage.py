"""The last stage of a stateful job: write the outcomes of its buckets, once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import blake2b
from operator import add
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from spark_jobs.errors import JobError
from spark_jobs.query.batch import SCHEMA, Batch, BatchReport, partition_id
from spark_jobs.rows.contexts import joined
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.sink import sink
from spark_jobs.sink.markers import Counts, Turn
from spark_jobs.sink.missing import missing
from spark_jobs.sink.outgoing import Evaluation, Joined, Outgoing
from spark_jobs.sink.recount import of_results
from spark_jobs.sink.sink import BatchInput, Settled, SinkConfig
from spark_jobs.source.topics import patterns, plain
from spark_jobs.stateful.outcome import OperatorTopics, Outcome, unwritable


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConfig:
    """The common settings of all batches of a query; goes to the executors."""

    topics: OperatorTopics
    sink: SinkConfig
    partitions: int

    def run(self, rows: DataFrame, batch: Batch) -> list[BatchReport]:
        """Write the buckets' outcomes; return a report of each partition that has any."""
        tasks = rows.mapInArrow(StatefulTask(self, batch), SCHEMA)
        return [BatchReport.decode(row["report"]) for row in tasks.collect()]


class StatefulTask:
    """
    Writes the outcomes of one shuffle partition's buckets.

    It runs in the task that has stepped them. If the task ends before Spark has stored their
    states, the batch is run again with the old ones, has the same outcomes, and finds its marker.
    """

    def __init__(self, config: WriteConfig, batch: Batch) -> None:
        self._config, self._batch = config, batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with rarely_collecting():
            found = [row for batch in batches for row in batch.to_pylist()]
            if not found:
                return
            report = self._report(found, partition_id())
        yield pa.RecordBatch.from_pydict({"report": [report.encode()]})

    def _report(self, found: list[dict[str, Any]], partition: int) -> BatchReport:
        stepped = [(Outcome.decode(row["outcome"]), row["alarm"]) for row in found]
        stepped.sort(key=lambda each: (each[0].bucket, each[0].number))
        outcomes = [outcome for outcome, _ in stepped]
        counts = reduce(add, (each.counts() for each in outcomes), Counts())
        try:
            settled = self._settle(outcomes, counts, partition)
        except JobError as error:
            return BatchReport(partition=partition, error=type(error).__name__, message=str(error))
        last = {each.bucket: each for each in outcomes}.values()
        return BatchReport(
            partition=partition,
            counts=settled.counts,
            replayed=settled.replayed,
            expired=sum(each.expired for each in outcomes),
            size=sum(each.read for each in outcomes),
            newest=max(each.newest for each in outcomes),
            buckets={str(each.bucket): [each.keys, each.open, each.size] for each in last},
            alarms={str(outcome.bucket): alarm for outcome, alarm in stepped},
            writer=settled.writer,
            contexts=joined(each.contexts for each in outcomes),
        )

    def _with_topics(self, outgoing: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """
        Return `outgoing`, with the job's own topic in place of topics that do not exist.

        A pattern to go back to lets a record's origin name any topic, and a topic that is missing
        would fail its batch for ever.
        """
        topics = self._config.topics
        if not patterns(topics.back_to):
            return outgoing
        written = {each.topic for each in outgoing}
        ours = {topics.output, topics.late, topics.dead_letter, *plain(topics.back_to)}
        gone = missing(self._config.sink.kafka, written - ours)
        return [
            each._replace(topic=topics.output) if each.topic in gone else each for each in outgoing
        ]

    def _settle(self, outcomes: list[Outcome], counts: Counts, partition: int) -> Settled:
        config, batch = self._config, self._batch
        outgoing = Joined([each.outgoing for each in outcomes])
        if not outgoing:
            return Settled(counts, replayed=False)
        digest = blake2b(digest_size=16)
        for each in outcomes:
            if each.rows or each.outgoing:
                digest.update(each.told)
        return sink.settle(
            Turn(
                query=batch.query,
                batch=batch.number,
                partition=partition,
                partitions=config.partitions,
            ),
            BatchInput(digest=digest.hexdigest(), ranges={}),
            config=config.sink,
            evaluate=lambda: Evaluation(self._with_topics(outgoing), counts),
            replace_poison=partial(unwritable, config.topics.dead_letter, batch.now),
            recount=partial(of_results, config.topics.late),
            adopt=batch.adopt,
            newest=batch.writers.get(partition, ""),
        )
