"""See that a job with timers begins with a batch, whatever it has ended with."""

import time
from typing import Any

from pyspark.sql import SparkSession


def begin(spark: SparkSession, checkpoint: str) -> None:
    """
    Write down that the query of `checkpoint` has begun a batch, if it ended between two of them.

    Spark looks at an operator's timers only behind a batch of the same run: without one, what
    becomes due would wait until a record comes. The batch is empty, and its clock is now's. By way
    of Spark's own logs, for a checkpoint may be on any file system.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  # no public way to Spark's logs
    logs = jvm.org.apache.spark.sql.execution.streaming.checkpointing
    begun, done = (
        kind(spark._jsparkSession, f"{checkpoint}/{name}", False)  # noqa: FBT003, SLF001  # Java's arguments
        for kind, name in ((logs.OffsetSeqLog, "offsets"), (logs.CommitLog, "commits"))
    )
    newest, last = begun.getLatestBatchId(), done.getLatestBatchId()
    if last.isEmpty() or newest.get() != last.get():
        return
    offsets = begun.get(last.get()).get()
    was = offsets.metadataOpt().get()
    now = time.time_ns() // 1_000_000
    clock = was.copy(was.batchWatermarkMs(), now, was.conf())
    begun.add(last.get() + 1, offsets.copy(offsets.offsets(), jvm.scala.Some(clock)))
