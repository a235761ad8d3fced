"""Run several queries in one Spark: all go on until they are stopped, or one of them ends."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from pyspark.sql import SparkSession

from spark_jobs.jobs.files import AnyJob, all_jobs
from spark_jobs.policy import job as dedup
from spark_jobs.query.query import Show
from spark_jobs.query.settings import DedupSettings
from spark_jobs.stateful import job as stateful_job

Run: TypeAlias = Callable[[threading.Event], None]
"""Runs a query until the event is set; the batch in progress is always finished."""

_LOOK_SECONDS = 0.2


def run(
    settings: DedupSettings,
    spark: SparkSession,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool = False,
) -> None:
    """
    Run a deduplicating job, and the job that puts its retries back if the settings ask for it.

    Raises:
        BadSettings: a setting, an operator or a topic is not valid.
    """
    run_all(queries([settings], spark, show=show, adopt=adopt), stop)


def queries(
    jobs: Iterable[AnyJob],
    spark: SparkSession,
    *,
    show: Show,
    adopt: bool = False,
) -> Mapping[str, Run]:
    """Return the queries of `jobs` by their names, each with a session of its own in `spark`."""
    found: dict[str, Run] = {}
    for job in all_jobs(jobs):
        # Configuration belongs to a session: another job may have other shuffle partitions.
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", str(job.spark.shuffle_partitions))
        found[job.spark.query] = _query(job, session, show, adopt=adopt)
    return found


def run_all(runs: Mapping[str, Run], stop: threading.Event) -> None:
    """
    Run all of `runs`; when `stop` is set, or one of them ends, all end.

    Raises:
        Exception: the error of the first run that failed.
    """
    if len(runs) == 1:
        (only,) = runs.values()
        only(stop)
        return
    ending = threading.Event()
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=_run, args=(each, ending, failures), name=name)
        for name, each in runs.items()
    ]
    for thread in threads:
        thread.start()
    while not ending.wait(_LOOK_SECONDS):
        if stop.is_set():
            ending.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _run(run_one: Run, ending: threading.Event, failures: list[BaseException]) -> None:
    try:
        run_one(ending)
    except BaseException as error:  # noqa: BLE001  # raised again by `run_all`
        failures.append(error)
    finally:
        ending.set()


def _query(job: AnyJob, session: SparkSession, show: Show, *, adopt: bool) -> Run:
    def until(stop: threading.Event) -> None:
        if isinstance(job, DedupSettings):
            dedup.run(job, session, show=show, stop=stop, adopt=adopt)
        else:
            stateful_job.run(job, session, show=show, stop=stop, adopt=adopt)

    return until
