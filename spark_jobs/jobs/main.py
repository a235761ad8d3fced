"""From a file of settings to a finished run: what the command line and spark-submit share."""

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.jobs import running, together
from spark_jobs.jobs.files import AnyJob
from spark_jobs.jobs.flow import Job
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.query import Show
from spark_jobs.query.session import close_session, configuration, open_session
from spark_jobs.query.settings import DedupSettings, SparkSettings
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import StatefulSettings

_log = logging.getLogger("dovecote.spark")


def run_dedup(
    settings: DedupSettings,
    *,
    master: str | None,
    jars: list[Path],
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    Run the job in a Spark of its own until it ends, or SIGTERM or SIGINT asks it to.

    `master` None: whoever started this process (spark-submit) has chosen one.

    Raises:
        BadSettings: something is not as it must be.
        JobError: a batch could not be written, its marker is not ours, or Spark gave up.
    """
    run = partial(together.run, settings, adopt=adopt)
    _run(run, settings.spark, master=master, jars=jars, json_lines=json_lines)


def run_stateful(
    settings: StatefulSettings,
    *,
    master: str | None,
    jars: list[Path],
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    As `run_dedup`, for a job with a stateful operator.

    Raises:
        BadSettings: something is not as it must be.
        JobError: a batch could not be written, its marker is not ours, or Spark gave up.
    """
    run = partial(stateful_job.run, settings, adopt=adopt)
    _run(run, settings.spark, master=master, jars=jars, json_lines=json_lines)


def run_flow(
    jobs: Mapping[str, Job],
    settings: SparkSettings,
    *,
    master: str | None,
    jars: list[Path],
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    As `run_dedup`, for the steps of a flow.

    Raises:
        BadSettings: something is not as it must be.
        JobError: a batch could not be written, its marker is not ours, or Spark gave up.
    """
    run = partial(running.run, jobs, adopt=adopt)
    _run(run, settings, master=master, jars=jars, json_lines=json_lines)


def run_together(
    jobs: Sequence[AnyJob],
    *,
    master: str | None,
    jars: list[Path],
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    As `run_dedup`, for several jobs of any kind; Spark is as the first of them says.

    Raises:
        BadSettings: something is not as it must be.
        JobError: a batch could not be written, its marker is not ours, or Spark gave up.
    """

    def run(spark: SparkSession, *, show: Show, stop: threading.Event) -> None:
        together.run_all(together.queries(jobs, spark, show=show, adopt=adopt), stop)

    _run(run, jobs[0].spark, master=master, jars=jars, json_lines=json_lines)


def _run(
    run: Callable[..., None],
    settings: SparkSettings,
    *,
    master: str | None,
    jars: list[Path],
    json_lines: bool,
) -> None:
    show = _show_json if json_lines else partial(_show_text, settings.query)
    with stopped_by_signal() as stop:
        spark = open_session(configuration(settings, master=master, jars=jars))
        try:
            _log.info("query %r begins", settings.query)
            with stopped_by_signal(stop):  # Spark has put its own handler of SIGINT there
                run(spark, show=show, stop=stop)
        finally:
            close_session(spark)
    _log.info("query %r has ended", settings.query)


@contextmanager
def stopped_by_signal(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set; their handlers come back afterwards."""
    event = stop or threading.Event()

    def heard(*_: object) -> None:
        event.set()

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_text(main: str, line: BatchLine) -> None:
    # Of several queries, those that came along say who they are.
    sys.stderr.write(f"{line}\n" if line.query == main else f"{line.query}: {line}\n")
    sys.stderr.flush()


def _show_json(line: BatchLine) -> None:
    sys.stdout.write(f"{line.json()}\n")
    sys.stdout.flush()
