"""The servers after a crash of the process that asked for them, and who may ask."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dovecote import devstack
from dovecote.devstack.kafka.jars import kafka_broker_jars
from dovecote.devstack.places import User, is_reachable
from dovecote.devstack.processes import Process
from tests.support.waiting import patient, until

REPOSITORY = Path(devstack.__file__).parents[2]

HOLD = """\
import json, os, sys
import psycopg
from confluent_kafka.admin import AdminClient
from dovecote.devstack import Stack
with Stack(fsync=False) as stack:
    with psycopg.connect(stack.postgres.dsn) as conn:
        superuser, = conn.execute("SELECT current_user").fetchone()
    brokers = len(AdminClient({"bootstrap.servers": stack.kafka.bootstrap}).list_topics().brokers)
    print(json.dumps({"directory": str(stack.directory), "superuser": superuser,
                      "brokers": brokers, "uid": os.geteuid()}), flush=True)
    if "paused" in sys.argv:
        stack.postgres.pause()
        stack.kafka.pause()
        print("paused", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["running", "paused"])
def test_a_parent_that_is_killed_leaves_no_server_and_no_folder(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        told = json.loads(parent.stdout.readline())
        if how == "paused":
            assert parent.stdout.readline() == b"paused\n"
        below = psutil.Process(parent.pid).children(recursive=True)
        left = [process for one in below if (process := Process.of(one.pid)) is not None]
        assert len(left) > 6, "two keepers, Kafka, Postgres and its children"

        parent.kill()

    until(lambda: not [one for one in left if one.running], within=30, what="all are gone")
    until(lambda: not Path(told["directory"]).exists(), within=10, what="their folder is gone")


@pytest.fixture
def folder_of_all() -> Iterator[Path]:
    """A folder that every user may search, and write in."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="all the other tests run as a normal user already")
def test_a_normal_user_runs_it_too(folder_of_all: Path) -> None:
    entry = pwd.getpwnam("nobody")
    user = User(entry.pw_uid, entry.pw_gid)
    python = python_for(user)
    kept = kafka_broker_jars()
    shutil.copytree(kept, folder_of_all / "cache/jars" / kept.name)

    ran = subprocess.run(
        [python, "-c", HOLD],
        input="",
        capture_output=True,
        text=True,
        timeout=patient(60),
        user=user.uid,
        group=user.gid,
        extra_groups=[],
        cwd=folder_of_all,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, [REPOSITORY, *site_packages()])),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(folder_of_all),
            "TMPDIR": str(folder_of_all),
            "DOVECOTE_CACHE": str(folder_of_all / "cache"),
        },
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["uid"], told["superuser"], told["brokers"]) == (user.uid, "postgres", 1)
    assert not Path(told["directory"]).exists()


def python_for(user: User) -> str:
    """Return a Python of this version that `user` can run, with the files that it reads."""
    if not all(is_reachable(place, user) for place in (REPOSITORY, *site_packages())):
        pytest.skip(f"{user} cannot read {REPOSITORY}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/python{version}"):
        if Path(candidate).exists() and is_reachable(Path(candidate), user):
            return candidate
    pytest.skip(f"{user} has no Python {version} that it can run")


def site_packages() -> list[Path]:
    return [Path(place) for place in sys.path if Path(place).name == "site-packages"]
