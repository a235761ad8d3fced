"""`dovecote stack up --spark --s3`: a cluster of Spark and an S3, beside the other servers."""

import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from dovecote.devstack.processes import Process
from tests.support.waiting import patient, until

DOVECOTE = (sys.executable, "-c", "from dovecote.cli.main import main; main()")


@pytest.fixture
def folder() -> Iterator[Path]:
    made = temporary_directory(server_user())
    yield made
    stack(made, "down")
    shutil.rmtree(made)


def stack(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DOVECOTE, "stack", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(150),
        check=False,
    )


def up(folder: Path, *options: str) -> Any:
    done = stack(folder, "up", "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_cluster_and_an_s3_come_and_go_with_the_stack(folder: Path) -> None:
    first = up(folder)
    assert {*first["pids"]} == {"postgres", "kafka"}

    found = up(folder, "--spark", "--s3")

    parts = {"postgres", "kafka", "spark-master", "spark-worker-1", "spark-worker-2", "s3"}
    assert {*found["pids"]} == parts
    assert found["pids"]["kafka"] == first["pids"]["kafka"]
    assert found["spark"].startswith("spark://127.0.0.1:")
    with urllib.request.urlopen(f"{found['s3']}/checkpoints", timeout=patient(10)) as answer:  # noqa: S310  # our own
        assert b"ListBucketResult" in answer.read()

    # A worker that ended is started again, and what a stack has once, it keeps.
    psutil.Process(found["pids"]["spark-worker-1"]).send_signal(signal.SIGKILL)
    until(lambda: stack(folder, "status").returncode == 1, within=20, what="it is missed")
    again = up(folder)
    assert {*again["pids"]} == parts
    assert again["spark"] == found["spark"]
    assert again["pids"]["spark-master"] == found["pids"]["spark-master"]

    pids = [process for pid in again["pids"].values() if (process := Process.of(pid))]
    assert len(pids) == len(parts)
    assert stack(folder, "down").returncode == 0
    assert not [process for process in pids if process.running]
