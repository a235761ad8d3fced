"""The same job file on a cluster: executors that are processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

from tests.spark.fix_spark import Supervised
from tests.spark.fix_stateful import MakeStateful, Sent, Stateful, made_clicks, summing, sums
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


def _as_configured(
    job: Stateful, folder: Path, **conf: str
) -> tuple[list[str], dict[str, str], Path]:
    """Return how to run a job on a cluster whose own configuration is `conf`; `_` is a dot."""
    defaults = folder / "conf"
    defaults.mkdir()
    lines = [f"spark.{name.replace('_', '.')} {value}\n" for name, value in conf.items()]
    (defaults / "spark-defaults.conf").write_text("".join(lines))
    command = [str(COMMAND), "spark", "sessions", "--config", str(job.file())]
    command += ["--master", "local[2]"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(defaults)}
    return command, environ, folder / "log"


def test_a_clusters_configuration_does_not_keep_sessions_open(
    stateful: MakeStateful, topic: MakeTopic, tmp_path: Path
) -> None:
    clicks = topic()
    job = stateful("sessions", [clicks], gap="1s")
    job.send(*(Sent(clicks, f"k{n}", time.time_ns() // 1_000_000, n) for n in range(3)))
    conf = {
        "sql_streaming_noDataMicroBatches_enabled": "false",
        "sql_adaptive_enabled": "true",
        "sql_ansi_enabled": "false",
        "sql_execution_arrow_useLargeVarTypes": "true",
        "sql_execution_arrow_pyspark_validateSchema_enabled": "true",
        "sql_execution_pyspark_binaryAsBytes": "false",
        "sql_execution_pyspark_udf_hideTraceback_enabled": "true",
        "sql_session_timeZone": "America/New_York",
        "python_worker_reuse": "false",
    }
    with Supervised(*_as_configured(job, tmp_path, **conf)) as sessions:
        until(
            lambda: sessions.goes_on() and len(job.written()) == 3,
            within=300,
            what="all sessions are closed",
        )


def test_a_limit_of_addresses_for_python_is_refused_before_it_ends_anything(
    stateful: MakeStateful, topic: MakeTopic, tmp_path: Path
) -> None:
    job = stateful("sessions", [topic()], gap="1s")
    conf = {"executor_pyspark_memory": "1g"}
    command, environ, _ = _as_configured(job, tmp_path, **conf)
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=patient(150), check=False
    )
    assert done.returncode == 2
    assert "spark.executor.pyspark.memory is 1g: it limits the addresses" in done.stderr
    assert "spark-defaults.conf" in done.stderr
