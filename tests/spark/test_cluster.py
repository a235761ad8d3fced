"""The same job file on a cluster: executors that are processes of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.fix_spark import Supervised
from tests.spark.fix_stateful import MakeStateful, made_clicks, summing, sums
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until

COMMAND = Path(sys.executable).with_name("dovecote")
ROOT = Path(__file__).parents[2]
MASTER = "local-cluster[2,1,1024]"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """
    Return a SPARK_HOME with a `work` folder of our own, where a local cluster puts its executors.
    """
    folder = tmp_path / "spark"
    folder.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (folder / part.name).symlink_to(part)
    return folder


def test_a_job_on_several_executors_writes_what_it_writes_on_one(
    stateful: MakeStateful, topic: MakeTopic, home: Path, tmp_path: Path
) -> None:
    clicks = topic(2)
    job, sent = summing(stateful, clicks), made_clicks(clicks, 300)
    job.send(*sent)
    expected = [line for line in job.replayed(sent, at=10**9) if line["kind"] == "result"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(home)}
    config = ["--config", str(job.file())]
    command = [str(COMMAND), "spark", "sessions", *config, "--master", MASTER, "--json"]
    with Supervised(command, environ, tmp_path / "log") as sessions:
        until(
            lambda: sessions.goes_on() and len(job.written()) >= len(expected),
            within=300,
            what="all sessions are written",
        )
        sessions.process.send_signal(signal.SIGTERM)
        assert sessions.process.wait(patient(60)) == 0, sessions.said()
    assert sums(job.values()) == sums(expected)
    executors = sorted(folder.name for folder in home.glob("work/app-*/*"))
    assert executors == ["0", "1"]
    # A command of its own can show what it remembers.
    done = subprocess.run(
        [str(COMMAND), "spark", "state", *config, "--json", "--master", "local[1]"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=patient(150),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    known = [json.loads(line) for line in done.stdout.splitlines()]
    assert known
    assert not any(entry["open"] for entry in known)
