"""Run jobs from their settings to the end: shared by the command line and spark-submit."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import SparkSession

from dovecote.process.signals import ending_within
from dovecote.process.telemetry import set_up_spans
from spark_jobs.failures import SPARKS, told
from spark_jobs.jobs import running, together
from spark_jobs.jobs.files import AnyJob
from spark_jobs.jobs.flow import Job
from spark_jobs.query.configuring import configuration, remarks
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.query import Show
from spark_jobs.query.session import close_session, open_session, submitted
from spark_jobs.query.settings import DedupSettings, SparkSettings
from spark_jobs.stateful import job as stateful_job
from spark_jobs.stateful.settings import StatefulSettings

_log = logging.getLogger("dovecote.spark")


def run_dedup(
    settings: DedupSettings,
    *,
    master: str | None,
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    Run the job in a Spark of its own until it ends, or SIGTERM or SIGINT asks it to.

    `master` None: the program that started this process (spark-submit) has chosen one.

    Raises:
        BadSettings: a setting, an operator or a topic is not valid.
    """
    run = partial(together.run, settings, adopt=adopt)
    _run(run, settings.spark, master=master, json_lines=json_lines)


def run_stateful(
    settings: StatefulSettings,
    *,
    master: str | None,
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    Like `run_dedup`, for a job with a stateful operator.

    Raises:
        BadSettings: a setting, an operator or a topic is not valid.
    """
    run = partial(stateful_job.run, settings, adopt=adopt)
    _run(run, settings.spark, master=master, json_lines=json_lines)


def run_flow(
    jobs: Mapping[str, Job],
    settings: SparkSettings,
    *,
    master: str | None,
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    Like `run_dedup`, for the steps of a flow.

    Raises:
        BadSettings: a setting, an operator or a topic is not valid.
    """
    run = partial(running.run, jobs, adopt=adopt)
    _run(run, settings, master=master, json_lines=json_lines)


def run_together(
    jobs: Sequence[AnyJob],
    *,
    master: str | None,
    json_lines: bool = False,
    adopt: bool = False,
) -> None:
    """
    Like `run_dedup`, for several jobs of any kind; the first one's settings are used for Spark.

    Raises:
        BadSettings: a setting, an operator or a topic is not valid.
    """

    def run(spark: SparkSession, *, show: Show, stop: threading.Event) -> None:
        together.run_all(together.queries(jobs, spark, show=show, adopt=adopt), stop)

    _run(run, jobs[0].spark, master=master, json_lines=json_lines)


def _run(
    run: Callable[..., None],
    settings: SparkSettings,
    *,
    master: str | None,
    json_lines: bool,
) -> None:
    show = _show_json if json_lines else partial(_show_text, settings.query)
    set_up_spans("dovecote-spark")
    with stopped_by_signal() as stop:
        spark = _opened(settings, master)
        try:
            _log.info("query %r begins", settings.query)
            with stopped_by_signal(stop):  # Spark has installed its own handler of SIGINT
                run(spark, show=show, stop=stop)
        except SPARKS as error:
            # Now, because the text of an exception is in the Java that ends below.
            raise told(error) from error
        finally:
            close_session(spark)
    _log.info("query %r has ended", settings.query)


def _opened(settings: SparkSettings, master: str | None) -> SparkSession:
    given = submitted() if master is None else {}
    for remark in remarks(settings, given):
        _log.warning("%s", remark)
    return open_session(configuration(settings, master=master, given=given))


@contextmanager
def stopped_by_signal(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and SIGINT set; restore the signals' handlers afterwards."""
    event = stop or threading.Event()

    def heard(*_: object) -> None:
        event.set()

    with ending_within(heard):
        yield event


def _show_text(main: str, line: BatchLine) -> None:
    # If there are several queries, the additional ones show their names.
    sys.stderr.write(f"{line}\n" if line.query == main else f"{line.query}: {line}\n")
    sys.stderr.flush()


def _show_json(line: BatchLine) -> None:
    sys.stdout.write(f"{line.json()}\n")
    sys.stdout.flush()
