"""Look whether all executors see a checkpoint whose state they write themselves."""

import os
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.checkpoint.files import SparkFiles
from spark_jobs.checkpoint.pins import PINNED

# So many tasks for each core: one that is free has one before another gets its second.
_TASKS = 4
# A look takes no time. This keeps an executor from all of them before another is ready.
_LOOK_SECONDS = 0.05


class Look(NamedTuple):
    """Whether a machine sees the mark of a checkpoint."""

    machine: str
    sees: bool


def unshared(checkpoint: str, looks: Iterable[Look]) -> str | None:
    """Return why a job with state cannot have this checkpoint, or None."""
    blind = sorted({each.machine for each in looks if not each.sees})
    if not blind:
        return None
    return (
        f"spark.checkpoint {checkpoint} is on a disk that not all machines share: executors on "
        f"{', '.join(blind)} do not see {PINNED} there. Each would keep a part of the state, "
        "which is gone with it. Set spark.checkpoint to a place that all share: s3a://…, "
        "hdfs://…, or a folder that is mounted on every machine"
    )


def require_shared(spark: SparkSession, files: SparkFiles) -> None:
    """
    Make sure that the executors that there are see the checkpoint as the driver does.

    Raises:
        BadSettings: one of them does not.
    """
    context = spark.sparkContext
    folder = files.on_a_disk()
    if folder is None or is_one_process(context.master or ""):
        return
    tasks = max(2, _TASKS * context.defaultParallelism)
    looks = context.parallelize(range(tasks), tasks).map(partial(_look, str(folder))).collect()
    if (reason := unshared(files.place, looks)) is not None:
        raise BadSettings(reason)


def is_one_process(master: str) -> bool:
    """Return whether driver and executor are one; `local-cluster` has executors of its own."""
    return master == "local" or master.startswith("local[")


def _look(folder: str, _: int) -> Look:
    time.sleep(_LOOK_SECONDS)
    name = os.environ.get("SPARK_LOCAL_HOSTNAME") or gethostname()
    return Look(name, (Path(folder) / PINNED).exists())
