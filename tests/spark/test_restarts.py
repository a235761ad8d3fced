"""A job that fails again and again is seen, although each of its processes is a new one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.console.rules import judging
from dovecote.console.rules.facts import Heard
from dovecote.console.sources.processes import ProcessSource
from dovecote.devstack.places import free_port
from spark_jobs.checkpoint.files import LocalFiles
from spark_jobs.checkpoint.restarts import RUNS, Ran, decode
from tests.spark.fix_spark import Job, MakeJob
from tests.support.observing import Observing, observing
from tests.support.waiting import patient, until

COMMAND = Path(sys.executable).with_name("dovecote")
START_SECONDS = 180.0


@contextmanager
def _run(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process of the job, and kill it at the end of the block."""
    command = [str(COMMAND), "spark", "dedup", "--config", str(job.file()), "--master", "local[1]"]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(patient(30))


def _ready(port: int) -> dict[str, Any]:
    """Return what the job says of itself; nothing if it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=patient(5)) as answer:
            return dict(json.load(answer))
    except HTTPError as error:
        with error:
            return dict(json.load(error))
    except OSError:
        return {}


def _answers_well(port: int) -> dict[str, Any]:
    """Return what a job that is ready says of itself; nothing if it is not."""
    said = _ready(port)
    return said if said.get("ok") else {}


def _status(job: Job) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["spark", "status", "--config", str(job.file()), "--json"])
    return done.exit_code, json.loads(done.stdout)


def _as_one_job(code: int, found: dict[str, Any]) -> tuple[int, str, bool]:
    return code, found["state"], found["ready"]


def _judged(port: int) -> tuple[str, str]:
    """Return how the console judges the job, and the first word of its reason."""
    answer = ProcessSource("spark", f"http://127.0.0.1:{port}", patient(5)).ask()
    now = time.time()
    judged = judging.process(Heard(answer, at=now), "the job", now)
    return judged.state, judged.reason.partition(" ")[0]


def _fires(prometheus: Observing, name: str) -> bool:
    return any(each["labels"]["alertname"] == name for each in prometheus.firing())


def _noted(checkpoint: Path) -> Sequence[Ran]:
    """Return the runs that are noted; a file that is just replaced is not there for a moment."""
    text = LocalFiles(checkpoint).read(RUNS)
    return () if text is None else decode(text)


def test_a_job_that_fails_three_times_is_failing_everywhere(
    bare_job: MakeJob, tmp_path: Path
) -> None:
    port = free_port()
    job = bare_job().with_(spark={"trigger": "200ms"}, http={"port": port})
    job.send(("a", b"{}", []))
    name = job.settings.spark.query
    # The first run is killed after its batches, the second one before any.
    with _run(job):
        said = until(lambda: _answers_well(port), within=START_SECONDS, what="the first run works")
        assert said["state"] in {"working", "idle"}
    with _run(job):
        until(
            lambda: len(_noted(job.checkpoint)) == 2,
            within=START_SECONDS,
            what="the second run begins",
        )
    # The third one fails by itself.
    with _run(job.with_(output={"topic": f"{name}-is-not-there"})) as process:
        assert process.wait(patient(START_SECONDS)) == 2
    assert [(run.ended is None, bool(run.error)) for run in _noted(job.checkpoint)] == [
        (True, False),
        (True, False),
        (False, True),
    ]

    # Nothing answers, and status knows it from the checkpoint.
    code, found = _status(job)
    assert (code, found["state"]) == (1, "failing")
    assert "3 runs failed within" in found["reason"]
    assert f"{name}-is-not-there" in found["reason"]

    (tmp_path / "prometheus").mkdir()
    with observing(tmp_path / "prometheus") as prometheus, _run(job):
        prometheus.watch({"dovecote-spark": [port]})
        said = until(lambda: _answers_well(port), within=START_SECONDS, what="the next run works")
        assert said["state"] == "failing"
        assert said["reason"].startswith("restarts again and again: 3 runs failed within")
        # Each of them hears nothing, once in a while, of a process that has no processor.
        until(
            lambda: _as_one_job(*_status(job)) == (1, "failing", True),
            within=30,
            what="status hears that a failing job works",
        )
        until(
            lambda: _judged(port) == ("failing", "restarts"),
            within=30,
            what="the console hears that the job restarts again and again",
        )
        until(
            lambda: _fires(prometheus, "DovecoteSparkRestarting"),
            within=patient(60),
            what="the alert fires",
        )
