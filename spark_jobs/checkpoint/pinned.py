"""Keep, beside a checkpoint, the settings with which it was made and must go on."""

import json
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from outbox.errors import BadSettings
from spark_jobs.checkpoint import damage
from spark_jobs.checkpoint.files import SparkFiles
from spark_jobs.checkpoint.pins import BEGAN, PINNED, Pins, foreign, refusal
from spark_jobs.checkpoint.sharing import require_shared
from spark_jobs.source.offsets import Offsets

_OF_SPARK = "sources/0/0"


def pin(
    spark: SparkSession,
    checkpoint: str,
    wanted: Pins,
    *,
    begin: Callable[[], Offsets],
    adopt: bool = False,
    has_state: bool = False,
) -> Offsets:
    """
    Compare `wanted` with the settings of the checkpoint; a new checkpoint gets them.

    Returns where the query began: `begin` is asked once, before the first start. Uses Spark's own
    file systems, because a checkpoint may be on any of them. With `adopt`, what may be changed is
    changed, and a checkpoint that another program made is taken over. With `has_state`, the
    executors look for it, too.

    Raises:
        BadSettings: a setting has changed, or the checkpoint is damaged, not ours, or not there
            for all executors.
        CheckpointUnavailable: its file system does not answer.
    """
    files = SparkFiles(spark, checkpoint)
    found: dict[str, Any] = {}
    if (text := files.read(PINNED)) is not None:
        found = damage.pins(checkpoint, PINNED, text)
    elif not adopt and files.exists("metadata"):
        raise BadSettings(foreign(checkpoint))
    # A job that had no state before lacks one for another reason than damage.
    if (reason := refusal(checkpoint, found, wanted, adopt=adopt)) is not None:
        raise BadSettings(reason)
    if (folder := damage.local(checkpoint)) is not None:
        damage.require_whole(folder, has_state=has_state)
    began = found[BEGAN] if BEGAN in found else _begun(files, begin)
    if found != (pinned := {**found, **wanted, BEGAN: began}):
        files.write(PINNED, json.dumps(pinned).encode())
    if has_state:
        require_shared(spark, files)
    return Offsets.of(began)


def _begun(files: SparkFiles, begin: Callable[[], Offsets]) -> dict[str, Any]:
    """Return where the query begins, or where Spark's own source began, which ran it before."""
    text = files.read(_OF_SPARK)
    return begin().fields() if text is None else damage.began(files.place, _OF_SPARK, text)
