"""Keep, beside a checkpoint, the settings with which it was made and must go on."""

import json
from typing import Any

from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.query.pins import PINNED, Pins, foreign, refusal


def pin(spark: SparkSession, checkpoint: str, wanted: Pins, *, adopt: bool = False) -> None:
    """
    Compare `wanted` with the settings of the checkpoint; a new checkpoint gets them.

    Uses Spark's own file systems, because a checkpoint may be on any of them. With `adopt`, what
    may be changed is changed, and a checkpoint that another program made is taken over.

    Raises:
        BadSettings: a setting has changed, or the checkpoint is not ours.
    """
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  # no public way to Spark's file systems
    if jvm is None:
        msg = "this Spark has no JVM of its own: Spark Connect cannot run the job"
        raise BadSettings(msg)
    hadoop: Any = jvm.org.apache.hadoop.fs
    path = hadoop.Path(checkpoint, PINNED)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001  # as above
    found: dict[str, object] = {}
    if files.exists(path):
        stream = files.open(path)
        found = json.loads(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        stream.close()
    elif not adopt and files.exists(hadoop.Path(checkpoint, "metadata")):
        raise BadSettings(foreign(checkpoint))
    if (reason := refusal(checkpoint, found, wanted, adopt=adopt)) is not None:
        raise BadSettings(reason)
    if found != (pinned := {**found, **wanted}):
        out = files.create(path, True)  # noqa: FBT003  # Java's argument
        out.write(bytearray(json.dumps(pinned).encode()))
        out.close()
