"""
Create the archive of the classes that Spark loads, once per environment.

Tests start Spark again and again. With the archive, each start takes 3 s less of a processor, out
of 8. `make test` runs this first. Without it, or with a Java that makes no archives, tests work
the same, only slower.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dovecote.devstack.kafka.class_archive import ClassArchive
from dovecote.devstack.kafka.java import java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark runs only for seconds here, too short for optimised code to pay off (it saves a sixth of
# the time of a test that kills jobs).
_COMPILING = "-XX:TieredStopAtLevel=1"
# For other jars, Java would print a warning to standard output, where tests look for lines.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def java_options() -> str:
    """Return the value of SPARK_SUBMIT_OPTS for tests."""
    found = _archive().options()
    return " ".join([_COMPILING, *found, *(_QUIET if found else ())])


def main() -> None:
    archive = _archive()
    if not archive.is_wanted:
        return
    # Every test run looks for the archive, and Spark itself takes a while to import.
    from spark_jobs.query.configuring import configuration
    from spark_jobs.query.session import STATE_STORE, open_session
    from spark_jobs.query.settings import SparkSettings

    print("keeping the classes that Spark loads, for its next starts …", flush=True)  # noqa: T201  # a command
    with TemporaryDirectory() as folder:
        os.environ.update(java().environment())
        options = [_COMPILING, *archive.options_of_server(Path(folder)), *_QUIET]
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options)
        settings = SparkSettings(query="classes", checkpoint="-", shuffle_partitions=2)
        spark = open_session(configuration(settings, master="local[2]") | STATE_STORE)
        (lines := Path(folder) / "lines").mkdir()
        _exercise(spark, lines)
        _end(spark)
        archive.keep(Path(folder))


def _archive() -> ClassArchive:
    # It is valid for these jars at this place, which belong to the environment.
    return ClassArchive(java(), Path(sys.prefix))


def _exercise(spark: "SparkSession", folder: Path) -> None:
    """Let a query with a state store and Python run for some batches."""

    def collect(batch: "DataFrame", _: int) -> None:
        batch.mapInArrow(lambda frames: frames, batch.schema).collect()

    for number in range(3):
        (folder / f"{number}.txt").write_text("a\nb\n", encoding="utf-8")
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    (
        lines.dropDuplicates(["value"])
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", f"{folder}-checkpoint")
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def _end(spark: "SparkSession") -> None:
    """End Spark, and wait while Java writes its archive, for which `close_session` has no time."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


if __name__ == "__main__":
    main()
