"""Make a job with timers begin with a batch, whatever it ended with."""

import time
from typing import Any

from pyspark.sql import SparkSession


def begin(spark: SparkSession, checkpoint: str) -> None:
    """
    Record that the query of `checkpoint` has begun a batch, if it ended between two batches.

    Spark looks at an operator's timers only after a batch of the same run. Without one, timers
    that become due would wait until a record comes. The batch is empty, and its clock is the
    present. It is written with Spark's own logs, because a checkpoint may be on any file system.
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
