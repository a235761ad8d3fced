"""A micro-batch, what its tasks report, and the stage that runs them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol, Self, TypeAlias

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.errors import REPORTED, JobError, QueryFailed
from spark_jobs.rows.buckets import NONE
from spark_jobs.sink.markers import Counts
from spark_jobs.sink.sink import SinkConfig

Alarms: TypeAlias = Mapping[str, int]
"""By bucket, in milliseconds, or `NONE`."""


class KnownAlarms:
    """Each step of a bucket reports its alarm; alarms from before the start are read."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}
        self.is_complete = False

    def report(self, alarms: Alarms) -> None:
        """Take in the alarms of buckets that have just been stepped."""
        self._reported |= alarms

    def complete(self, stored: Alarms) -> None:
        """Take in the alarms that a finished batch has left; alarms since the start are newer."""
        self._reported = {**stored, **self._reported}
        self.is_complete = True

    def is_due(self, now: int) -> bool:
        """Return whether Spark would call a bucket at `now`, or might as far as is known."""
        if not self.is_complete:
            return True
        return any(alarm != NONE and alarm <= now for alarm in self._reported.values())


# As an object: as text, Java would parse it for each batch.
SCHEMA = StructType([StructField("report", StringType())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch."""

    query: str
    number: int
    now: int
    """Wall clock when it began, in milliseconds; where Spark's is among the rows, that counts."""
    adopt: bool = False
    way: str | None = None
    """How an earlier run of the batch has begun to write it; None: no run has."""
    writers: Mapping[int, str] = field(default_factory=dict)
    """Names of those that wrote shuffle partitions last, as far as the driver was told."""

    traced: bool = False
    """Whether tasks report where some of their records come from."""

    def at(self, now: int) -> Self:
        """Return the batch with Spark's clock, which is the same when it is run again."""
        return replace(self, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A task's report to the driver: the counts of its turn, or why it could not be written."""

    partition: int
    counts: Counts = field(default_factory=Counts)
    replayed: bool = False
    misplaced: int = 0
    """Rows that lay in a partition where their key does not belong."""
    expired: int = 0
    """Offsets that the topics had deleted before they were read."""
    size: int = 0
    """The bytes that it read, about; 0: it had no need to read."""
    newest: int = 0
    """The newest timestamp among its rows, in milliseconds."""
    buckets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For each bucket whose state was stepped: keys, open entries, bytes."""
    alarms: Alarms = field(default_factory=dict)
    """When Spark will call the buckets that were stepped."""
    writer: str = ""
    """Name of the writer that settled it; empty: nothing was to be settled."""
    contexts: Sequence[str] = ()
    """The trace contexts of some of its records, if the batch is traced."""
    error: str | None = None
    """Name of the error, one of `REPORTED`."""
    message: str = ""

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Self:
        fields = json.loads(text)
        contexts = tuple(fields.pop("contexts", ()))
        return cls(counts=Counts(**fields.pop("counts")), contexts=contexts, **fields)

    def exception(self) -> JobError | None:
        """Return the error as it was raised in the task."""
        return None if self.error is None else REPORTED.get(self.error, QueryFailed)(self.message)


class Stage(Protocol):
    """Handles and writes the rows of a micro-batch."""

    @property
    def sink(self) -> SinkConfig: ...
    @property
    def partitions(self) -> int: ...

    def run(self, rows: DataFrame, batch: Batch) -> list[BatchReport]:
        """Handle and write one micro-batch; return a report of each partition."""


def partition_id() -> int:
    """Return the shuffle partition that this task works on."""
    context = TaskContext.get()
    if context is None:
        msg = "a task runs on Spark's executors only"
        raise QueryFailed(msg)
    return context.partitionId()
