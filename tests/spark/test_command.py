"""The job as a process: its command, its signals, its death."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dovecote.devstack.kafka.java import java
from spark_jobs.checkpoint.files import LocalFiles
from spark_jobs.jobs.check import next_batch
from tests.spark.fix_spark import Job, MakeJob
from tests.support.waiting import patient, until

COMMAND = Path(sys.executable).with_name("dovecote")
WAITS = "tests.unit.spark_jobs.handlers:waits"
ROOT = Path(__file__).parents[2]


def _environ() -> dict[str, str]:
    """Return an environment in which the tests' handlers can be imported wherever the job runs."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def _started(job: Job, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [str(COMMAND), "spark", "dedup", "--config", str(job.file()), *arguments]
    process = subprocess.Popen(
        command, env=_environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=patient(60))


def _checked(job: Job) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "spark", "dedup", "--config", str(job.file()), "--check"]
    return subprocess.run(
        command, env=_environ(), capture_output=True, text=True, timeout=patient(60), check=False
    )


def test_a_check_tells_what_is_right_and_changes_nothing(bare_job: MakeJob) -> None:
    job = bare_job()

    done = _checked(job)

    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.startswith("ok ") for line in done.stdout.splitlines())
    assert len(done.stdout.splitlines()) == 6
    assert "`dovecote spark delay` puts them back" in done.stdout
    assert not job.checkpoint.exists()
    assert job.markers() == {}


def test_a_check_tells_all_that_is_wrong(bare_job: MakeJob) -> None:
    job = bare_job(handler="tests.unit.spark_jobs.handlers:nobody")
    job = job.with_(output={"topic": "not-there"})
    job.checkpoint.mkdir()
    (job.checkpoint / "photo.jpg").touch()

    done = _checked(job)

    assert done.returncode == 1
    wrong = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    assert [line.split()[1] for line in wrong] == ["filter", "checkpoint:", "topics:"]
    assert "not-there" in done.stdout


def test_bad_usage_has_an_exit_status_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[spark]\nquerry = 'x'\n")

    done = subprocess.run(
        [str(COMMAND), "spark", "dedup", "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )

    assert done.returncode == 2
    assert "spark.querry" in done.stderr


def test_sigterm_ends_the_job_after_the_batch_under_way(bare_job: MakeJob, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = bare_job(handler=WAITS).with_(spark={"trigger": "100ms"})
    job.send(("a", b"{}", []))
    with _started(job, "--json", "--master", "local[2]") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["batch"], first["rows"], first["query"]) == (0, 1, job.settings.spark.query)
        started = psutil.Process(process.pid).children(recursive=True)
        job.send(("b", json.dumps({"wait_for": str(gate)}).encode(), []))
        under_way = Path(f"{gate}-waited-for")
        until(under_way.exists, within=60, what="batch 1 is being handled")

        job.send(("c", b"{}", []))  # for a batch that must not begin any more
        process.send_signal(signal.SIGTERM)
        gate.touch()

        out, err = process.communicate(timeout=patient(60))
    assert process.returncode == 0
    assert [json.loads(line)["batch"] for line in out.splitlines()] == [1]
    assert next_batch(LocalFiles(job.checkpoint)) == 2
    assert Counter(each.key for each in job.output()) == Counter([b"a", b"b"])
    # No warnings and no stack traces, neither at the start nor at the end.
    noise = [line for line in err.splitlines() if " INFO " not in line]
    assert noise == [], err
    _, alive = psutil.wait_procs(started, timeout=patient(20))
    assert alive == []


def test_a_driver_killed_in_the_middle_of_a_batch_leaves_nothing_lost_or_doubled(
    job: MakeJob, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    dedup = job(handler=WAITS)
    wait = json.dumps({"wait_for": str(gate)}).encode()
    dedup.send(*((f"k{n}", wait if n == 7 else b"{}", []) for n in range(40)))
    # One shuffle partition is written; the other one, with k7, is still being handled.
    with _started(dedup, "--master", "local[2]") as process:
        until(lambda: len(dedup.markers()) == 1, within=120, what="half of the batch is written")
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    _, alive = psutil.wait_procs(children, timeout=patient(30))
    assert alive == []
    half = len(dedup.output())
    assert 0 < half < 40
    gate.touch()

    (line,) = dedup.run()

    assert (line.batch, line.rows, line.replayed) == (0, 40, 1)
    assert Counter(each.key for each in dedup.output()) == Counter(
        f"k{n}".encode() for n in range(40)
    )


def test_the_same_job_runs_through_spark_submit(bare_job: MakeJob) -> None:
    job = bare_job()
    job.send(*((f"k{n % 5}", b"{}", []) for n in range(50)))
    script = ROOT / "spark_jobs" / "jobs" / "dedup_stream.py"
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[2]"),
        *("--conf", "spark.ui.enabled=false"),
        str(script),
        *("--config", str(job.file()), "--json"),
    ]
    environ = {**_environ(), **java().environment(), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=patient(200), check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    assert (line["rows"], line["handled"], line["skipped"]) == (50, 5, {"superseded": 45})
    assert Counter(each.key for each in job.output()) == Counter(
        f"k{n}".encode() for n in range(5)
    )
