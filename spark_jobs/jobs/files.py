"""Load the files of jobs of any kind that run together."""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from dovecote.process.settings.loading import load
from outbox.errors import BadSettings
from spark_jobs.jobs.check import Checkpoints, Finding, check, check_job
from spark_jobs.operators.table import require
from spark_jobs.query.settings import PREFIX, DedupSettings
from spark_jobs.stateful.settings import JOBS, StatefulSettings, recirculation

AnyJob: TypeAlias = DedupSettings | StatefulSettings


def load_all(files: Iterable[Path], *, environ: Mapping[str, str]) -> list[AnyJob]:
    """
    Return the settings in `files`, each by the `type` in its `[operator]` table.

    Raises:
        BadSettings: a file is not valid, or two share a name or a checkpoint.
    """
    jobs = [_loaded(file, environ) for file in files]
    spark = [job.spark for job in all_jobs(jobs)]
    for what in ("query", "checkpoint"):
        value, times = Counter(getattr(each, what) for each in spark).most_common(1)[0]
        if times > 1:
            msg = f"spark.{what} is {value!r} in several jobs: each needs its own"
            raise BadSettings(msg)
    return jobs


def all_jobs(jobs: Iterable[AnyJob]) -> list[AnyJob]:
    """Return `jobs`, and the jobs that put their retries back."""
    found: list[AnyJob] = []
    for job in jobs:
        found.append(job)
        if isinstance(job, DedupSettings) and job.recirculation.run == "together":
            found.append(recirculation(job))
    return found


def check_all(jobs: Sequence[AnyJob], checkpoints: Checkpoints) -> Iterator[Finding]:
    """Yield what was checked of each of `jobs`; this changes nothing."""
    for job in jobs:
        looks = (
            check(job, checkpoints)
            if isinstance(job, DedupSettings)
            else check_stateful(job, checkpoints)
        )
        for what, problem in looks:
            yield Finding(f"{job.spark.query}: {what}", problem)


def check_stateful(job: StatefulSettings, checkpoints: Checkpoints) -> Iterator[Finding]:
    """Yield what was checked of a job with an operator of ours; this changes nothing."""
    return check_job(job, "operator", lambda: require(job.operator), checkpoints)


def _loaded(file: Path, environ: Mapping[str, str]) -> AnyJob:
    stateful = JOBS.get(_type(file))
    if stateful is not None:
        return load(stateful, file, prefix=PREFIX, environ=environ)
    return load(DedupSettings, file, prefix=PREFIX, environ=environ)


def _type(file: Path) -> str:
    try:
        operator = tomllib.loads(file.read_text(encoding="utf-8")).get("operator")
    except (OSError, ValueError, RecursionError):
        return ""  # the loader reports what is wrong
    return str(operator.get("type", "")) if isinstance(operator, dict) else ""
