"""Run the steps of a flow beside each other, in one Spark."""

import threading
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from spark_jobs.jobs.check import Checkpoints, Finding, check, check_job
from spark_jobs.jobs.files import check_stateful
from spark_jobs.jobs.flow import Job
from spark_jobs.jobs.together import queries, run_all
from spark_jobs.operators.aggregation.guard import make
from spark_jobs.query.query import Show
from spark_jobs.query.settings import DedupSettings
from spark_jobs.stateful.settings import AggregationJob


def run(
    jobs: Mapping[str, Job],
    spark: SparkSession,
    *,
    show: Show,
    stop: threading.Event,
    adopt: bool = False,
) -> None:
    """
    Run the queries until `stop` is set; if one ends, all do.

    Raises:
        BadSettings: a setting, a script or a topic is not valid.
    """
    run_all(queries(jobs.values(), spark, show=show, adopt=adopt), stop)


def look(jobs: Mapping[str, Job], checkpoints: Checkpoints) -> Iterator[Finding]:
    """Yield what was checked of each step; this changes nothing."""
    for name, job in jobs.items():
        for what, problem in _findings(job, checkpoints):
            yield Finding(f"{name}: {what}", problem)


def _findings(job: Job, checkpoints: Checkpoints) -> Iterator[Finding]:
    if isinstance(job, DedupSettings):
        return check(job, checkpoints)
    if isinstance(job, AggregationJob):
        what = "scripts and schemas"
        return check_job(job, what, lambda: _forget(make(job.operator)), checkpoints)
    return check_stateful(job, checkpoints)


def _forget(_: object) -> None:
    """Ignore a result that was only made as a check."""
