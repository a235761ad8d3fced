"""What a checkpoint was made with and must go on with, kept beside it."""

import json
from collections.abc import Mapping

from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.check import PINNED


def pin(spark: SparkSession, checkpoint: str, settings: Mapping[str, object]) -> None:
    """
    Compare `settings` with those that the checkpoint was made with; a new one gets them.

    By way of Spark's own file systems, for a checkpoint may be on any of them.

    Raises:
        BadSettings: a setting is another than it was.
    """
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  # no public way to Spark's file systems
    if jvm is None:
        msg = "this Spark has no JVM of its own: Spark Connect cannot run the job"
        raise BadSettings(msg)
    hadoop = jvm.org.apache.hadoop.fs
    path = hadoop.Path(checkpoint, PINNED)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001  # as above
    if not files.exists(path):
        out = files.create(path, True)  # noqa: FBT003  # Java's argument
        out.write(bytearray(json.dumps(dict(settings)).encode()))
        out.close()
        return
    stream = files.open(path)
    found = json.loads(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    stream.close()
    for name, value in settings.items():
        if found.get(name) != value:
            msg = (
                f"the checkpoint {checkpoint} was made with {name} = {found.get(name)}, not "
                f"{value}: set it back, or begin with a new checkpoint (and `--adopt`, once)"
            )
            raise BadSettings(msg)
