"""What a checkpoint was made with and must go on with, kept beside it."""

import json
from collections.abc import Mapping

from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.check import PINNED


def pin(
    spark: SparkSession, checkpoint: str, settings: Mapping[str, object], *, new: str | None = None
) -> None:
    """
    Compare `settings` with those that the checkpoint was made with; a new one gets them.

    By way of Spark's own file systems, for a checkpoint may be on any of them. `new` names a file
    that no checkpoint may have which has no settings yet.

    Raises:
        BadSettings: a setting is another than it was.
    """
    found = _found(spark, checkpoint, settings, new)
    for name, value in settings.items():
        if found.get(name) != value:
            raise BadSettings(_changed(checkpoint, name, found.get(name), value))


def require_unpinned(spark: SparkSession, checkpoint: str, name: str) -> None:
    """
    Refuse a checkpoint that was made with the setting `name`.

    Raises:
        BadSettings: it was.
    """
    if name in (found := _found(spark, checkpoint, None, None)):
        raise BadSettings(_changed(checkpoint, name, found[name], None))


def _changed(checkpoint: str, name: str, was: object, is_: object) -> str:
    return (
        f"the checkpoint {checkpoint} was made with {name} = {was}, not "
        f"{is_}: set it back, or begin with a new checkpoint (and `--adopt`, once)"
    )


def _found(
    spark: SparkSession, checkpoint: str, settings: Mapping[str, object] | None, new: str | None
) -> dict[str, object]:
    """Return what the checkpoint was made with; one that does not say gets `settings`, if any."""
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  # no public way to Spark's file systems
    if jvm is None:
        msg = "this Spark has no JVM of its own: Spark Connect cannot run the job"
        raise BadSettings(msg)
    hadoop = jvm.org.apache.hadoop.fs
    path = hadoop.Path(checkpoint, PINNED)
    files = path.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001  # as above
    if not files.exists(path):
        if settings is None:
            return {}
        if new is not None and files.exists(hadoop.Path(checkpoint, new)):
            return {}
        out = files.create(path, True)  # noqa: FBT003  # Java's argument
        out.write(bytearray(json.dumps(dict(settings)).encode()))
        out.close()
        return dict(settings)
    stream = files.open(path)
    found: dict[str, object] = json.loads(
        jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    )
    stream.close()
    return found
