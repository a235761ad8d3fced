"""
Note each run of a query in its checkpoint, where the next process finds it.

A job that fails is a new process each time, so what it remembers must outlive it. The checkpoint
does: it is on a file system that all of them reach, also on an object store, and it answers when
Kafka does not. A topic of markers would not say why Kafka refused a run.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from dovecote.process.logs import one_line
from outbox.errors import DovecoteError
from spark_jobs.checkpoint.damage import local
from spark_jobs.checkpoint.files import Files, LocalFiles, SparkFiles
from spark_jobs.checkpoint.restarts import (
    RUNS,
    Ran,
    Restarts,
    begun,
    decode,
    encode,
    ended,
    restarts,
)

_log = logging.getLogger("dovecote.spark")


@dataclass(frozen=True, slots=True)
class Runs:
    """The present run of a query, and those before it."""

    known: tuple[Ran, ...] = ()

    def restarts(self) -> Restarts:
        """Return the failed runs that count now."""
        return restarts(self.known, time.time(), running=True)


@contextmanager
def noted(spark: SparkSession, checkpoint: str) -> Iterator[Runs]:
    """
    Note that a run begins, and at the end of the block how it ended.

    Raises:
        CheckpointUnavailable: the checkpoint's file system does not answer.
    """
    files = SparkFiles(spark, checkpoint)
    runs = begun(_read(files), time.time())
    files.write(RUNS, encode(runs).encode())
    try:
        yield Runs(runs)
    except BaseException as error:
        _end(files, runs, one_line(f"{type(error).__name__}: {error}"))
        raise
    _end(files, runs)


def look(checkpoint: str) -> Restarts:
    """Return the failed runs of a query that is not running, from a checkpoint on this machine."""
    folder = local(checkpoint)
    if folder is None:
        return Restarts()
    try:
        known = _read(LocalFiles(folder))
    except OSError as error:
        _log.warning("%s/%s is not readable, so restarts are not known: %s", folder, RUNS, error)
        return Restarts()
    return restarts(known, time.time(), running=False)


def _read(files: Files) -> Sequence[Ran]:
    text = files.read(RUNS)
    if text is None:
        return ()
    try:
        return decode(text)
    except ValueError as error:
        # Nothing depends on it but the count of restarts, which begins anew.
        _log.warning("%s/%s is not readable and begins anew: %s", files.place, RUNS, error)
        return ()


def _end(files: SparkFiles, runs: Sequence[Ran], error: str = "") -> None:
    try:
        files.write(RUNS, encode(ended(runs, time.time(), error)).encode())
    except DovecoteError as trouble:
        # The run's own error counts more, and the next run takes this one as killed.
        _log.warning("the end of this run was not noted: %s", trouble)
