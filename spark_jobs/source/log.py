"""Read from a checkpoint what Spark has planned for a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.errors import QueryFailed
from spark_jobs.source import offsets
from spark_jobs.source.offsets import Offsets, Range


@dataclass(frozen=True, slots=True)
class Plan:
    """The ranges that a batch reads, and its clock: the same each time that the batch is run."""

    ranges: list[Range]
    digest: str
    ids: Mapping[str, str]
    """Kafka's ids of the topics."""
    now: int
    """Spark's clock of the batch, in milliseconds since 1970."""
    partitions: dict[str, int]
    """How many partitions each topic has."""


class BatchLog:
    """Spark's log of offsets of one query, which may be on any file system."""

    def __init__(self, spark: SparkSession, checkpoint: str, begin: Offsets) -> None:
        self._spark, self._folder, self._begin = spark, f"{checkpoint}/offsets", begin
        self._log: Any = None
        self._last: tuple[int, Offsets] | None = None

    def plan(self, number: int) -> Plan:
        """Return what the batch `number` reads, which Spark has recorded before it begins it."""
        entry = self._entry(number)
        end = _offsets(entry)
        start = self._start(number)
        self._last = number, end
        found = offsets.ranges(start, end)
        return Plan(
            found,
            offsets.digest(found, end.ids),
            end.topic_ids(),
            int(entry.metadataOpt().get().batchTimestampMs()),
            {topic: len(partitions) for topic, partitions in end.ends.items()},
        )

    def _start(self, number: int) -> Offsets:
        if number == 0:
            return self._begin
        if self._last is not None and self._last[0] == number - 1:
            return self._last[1]
        return _offsets(self._entry(number - 1))

    def _entry(self, number: int) -> Any:  # noqa: ANN401  # Spark's
        if self._log is None:
            jvm: Any = self._spark.sparkContext._jvm  # noqa: SLF001  # no public way to Spark's logs
            logs = jvm.org.apache.spark.sql.execution.streaming.checkpointing
            session = self._spark._jsparkSession  # noqa: SLF001  # as above
            self._log = logs.OffsetSeqLog(session, self._folder, False)  # noqa: FBT003  # Java's argument
        found = self._log.get(number)
        if found.isEmpty():
            msg = f"{self._folder} lacks batch {number}: somebody has changed the checkpoint"
            raise QueryFailed(msg)
        return found.get()


def _offsets(entry: Any) -> Offsets:  # noqa: ANN401  # as above
    return Offsets.decode(entry.offsets().apply(0).get().json())
