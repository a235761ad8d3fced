import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dovecote.devstack.detached import StackState
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from dovecote.devstack.processes import Process
from tests.support.waiting import patient, until

DOVECOTE = (sys.executable, "-c", "from dovecote.cli.main import main; main()")


class Run:
    """Runs `dovecote stack` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DOVECOTE, "stack", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=patient(90),
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture
def run() -> Iterator[Run]:
    folder = temporary_directory(server_user())
    run = Run(folder)
    yield run
    run("down")
    shutil.rmtree(folder)


def test_up_status_and_down(run: Run) -> None:
    assert run("status").returncode == 1

    up = run("up", "--json")

    assert up.returncode == 0, up.stderr
    told = json.loads(up.stdout)
    with psycopg.connect(told["dsn"]) as conn:
        assert conn.execute("SHOW fsync").fetchone() == ("on",)
    admin = AdminClient({"bootstrap.servers": told["bootstrap"]})
    assert admin.list_topics(timeout=patient(10)).brokers
    assert told["running"]
    assert told["directory"] == str(run.folder / ".dovecote/stack")

    again = run("up")
    assert again.returncode == 0
    assert again.stdout.startswith("Postgres and Kafka run already\n")
    assert told["dsn"] in again.stdout
    assert told["bootstrap"] in again.stdout

    variables = json.loads(run("env", "--json").stdout)
    assert variables["DOVECOTE_RELAY_KAFKA__BOOTSTRAP_SERVERS"] == told["bootstrap"]
    assert variables["DOVECOTE_RELAY_DSN"] == told["dsn"]
    assert f"export PGPORT={variables['PGPORT']}\n" in run("env").stdout
    assert run("psql", "--", "-Atc", "SHOW server_version_num").stdout.startswith("1")

    status = run("status", "--json")
    assert status.returncode == 0
    assert json.loads(status.stdout) == told

    # A server that ended is reported, and started again where it was, on its own.
    os.kill(told["pids"]["postgres"], signal.SIGKILL)
    until(lambda: run("status").returncode == 1, within=20, what="status tells that it is gone")
    assert "does not run" in run("status").stdout
    repaired = run.json("up")
    assert repaired["dsn"] == told["dsn"]
    assert repaired["pids"]["kafka"] == told["pids"]["kafka"]
    assert repaired["pids"]["postgres"] != told["pids"]["postgres"]

    pids = [process for pid in repaired["pids"].values() if (process := Process.of(pid))]
    assert len(pids) == 2
    down = run("down")
    assert (down.returncode, down.stdout) == (0, "Postgres and Kafka are down\n")
    assert not [process for process in pids if process.running]
    assert run("down").stdout == "nothing was running\n"
    for gone in ("env", "psql"):
        assert "the stack does not run here; try: dovecote stack up" in run(gone).stderr
    assert run.json("status")["running"] is False


def test_down_does_not_touch_a_process_that_was_given_the_id_of_a_server(run: Run) -> None:
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    home = run.folder / ".dovecote/stack"
    home.mkdir(parents=True)
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as stranger:
        stale = {"pid": stranger.pid, "began": "before the last boot"}
        held = {"address": "nowhere", "server": stale, "keeper": stale}
        members = {"postgres": held, "kafka": held}
        (home / "state.json").write_text(
            json.dumps({"directory": str(home), "members": members}),
        )

        down = run("down")

        assert (down.returncode, down.stdout) == (0, "nothing was running\n")
        assert run("status").returncode == 1
        with pytest.raises(subprocess.TimeoutExpired):
            stranger.wait(0.2)
        stranger.kill()


def test_an_up_that_is_killed_half_way_leaves_no_servers(run: Run) -> None:
    home = run.folder / ".dovecote/stack"
    with subprocess.Popen(
        [*DOVECOTE, "stack", "up"],
        cwd=run.folder,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as up:
        kafka = home / "kafka/server.log"
        until(kafka.exists, within=30, what="Kafka is being started")
        below = [child for child in children(up.pid) if child.running]
        up.kill()
    until(lambda: not [one for one in below if one.running], within=30, what="all are gone")
    assert StackState.read(home) is None


def children(pid: int) -> list[Process]:
    below = psutil.Process(pid).children(recursive=True)
    return [process for one in below if (process := Process.of(one.pid)) is not None]


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_help_shows_an_example(run: Run, command: str) -> None:
    assert f"Example: dovecote stack {command}" in run(command, "--help").stdout


def test_three_brokers_are_cut_off_healed_and_started_again_where_they_were(run: Run) -> None:
    up = run("up", "--brokers", "3", "--json")
    assert up.returncode == 0, up.stderr
    told = json.loads(up.stdout)
    assert sorted(told["pids"]) == ["gates", "kafka-1", "kafka-2", "kafka-3", "postgres"]
    first, *others = told["bootstrap"].split(",")

    assert run("isolate", "1", "--from", "both").returncode == 0
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": first}).list_topics(timeout=1)
    assert AdminClient({"bootstrap.servers": others[0]}).list_topics(timeout=patient(10)).brokers
    assert run("heal").returncode == 0
    assert AdminClient({"bootstrap.servers": first}).list_topics(timeout=patient(20)).brokers

    refused = run("isolate", "4")
    assert "there is no broker 4; there are 3, from 1" in refused.stderr
    assert "has 3 broker(s), not 1" in run("up", "--brokers", "1").stderr

    # A server that ended is started again, on its own, and found where it was.
    os.kill(told["pids"]["kafka-2"], signal.SIGKILL)
    until(lambda: run("status").returncode == 1, within=20, what="status tells that it is gone")
    again = run.json("up")
    assert again["bootstrap"] == told["bootstrap"]
    assert again["pids"]["kafka-1"] == told["pids"]["kafka-1"]
    assert again["pids"]["kafka-2"] != told["pids"]["kafka-2"]


def test_one_broker_has_no_gates_and_says_so(run: Run) -> None:
    assert "start one with: dovecote stack up --brokers 3" in run("isolate", "1").stderr
    assert "one broker, or 3 that replicate; 2 is neither" in run("up", "--brokers", "2").stderr


def test_other_versions_run_and_stay_with_their_data(run: Run) -> None:
    told = run.json("up", "--postgres", "14", "--kafka", "3.7")

    assert told["versions"] == {"postgres": "14", "kafka": "3.7"}
    with psycopg.connect(told["dsn"]) as conn:
        assert conn.info.server_version // 10_000 == 14
    assert "kafka 3.7 " in run("status").stdout

    for option, version, says in (
        ("--postgres", "15", "is of Postgres 14, not 15; give the other one a --directory"),
        ("--kafka", "2.8", "there is no Kafka 2.8 here; there are 3.7, 3.9, 4.2, 4.4"),
    ):
        refused = run("up", option, version)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert says in refused.stderr

    run("down")
    assert run.json("up")["versions"] == told["versions"]
