"""Everything that a job needs around it: packages, logs and Java."""

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from dovecote.devstack.kafka.java import java
from dovecote.process.logs import LogFormat, LogLevel, configure
from outbox.errors import BadSettings

OLDEST_SPARK = (4, 2)
if TYPE_CHECKING:  # they need PySpark, which may not be installed
    from spark_jobs.jobs.check import Checkpoints
    from spark_jobs.query.settings import SparkSettings


def prepare(form: LogFormat, level: LogLevel = LogLevel.INFO) -> None:
    """Set up logging, and Java for Spark."""
    configure(form, level)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the job reports the same
    os.environ.update(java().environment())


@contextmanager
def looking(
    jobs: Iterable["SparkSettings"], form: LogFormat, level: LogLevel
) -> "Iterator[Checkpoints]":
    """Yield what looks into the jobs' checkpoints; only those elsewhere need Java and Spark."""
    from spark_jobs.checkpoint.damage import local
    from spark_jobs.jobs.check import Checkpoints

    if any(local(each.checkpoint) is None for each in jobs):
        prepare(form, level)
    with Checkpoints() as checkpoints:
        yield checkpoints


def report(findings: Iterable[tuple[str, str | None]]) -> int:
    """Print the findings; return the exit status."""
    failed = False
    for what, problem in findings:
        typer.echo(f"ok    {what}" if problem is None else f"FAIL  {what}: {problem}")
        failed |= problem is not None
    return 1 if failed else 0


def require_spark() -> None:
    """
    Check that PySpark and the packages that it needs are installed.

    Raises:
        BadSettings: one of them is not, or PySpark is too old.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        msg = "PySpark is not installed here: pip install 'dovecote[spark]'"
        raise BadSettings(msg)
    # Sources in Python know where a batch begins, and limits of it, only since then.
    found = version("pyspark")
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_SPARK:
        needed = ".".join(str(part) for part in OLDEST_SPARK)
        msg = f"PySpark {found} is too old: Dovecote needs PySpark {needed} or newer"
        raise BadSettings(msg)
