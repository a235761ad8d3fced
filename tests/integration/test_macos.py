"""The stack's servers, kept by what macOS has as well; this is no macOS, see `like_macos`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.documents import ROOT
from tests.support.like_macos import SITE
from tests.support.waiting import patient, until

HOLD = """\
import json, os, sys
import psycopg
from dovecote.devstack import Stack
assert sys.platform == "darwin"
stack = Stack(fsync=False)
stack.start()
postgres = stack.postgres
postgres.pause()
postgres.resume()
postgres.kill()
postgres.start()
with psycopg.connect(postgres.dsn) as conn:
    conn.execute("SELECT 1")
servers = (postgres, stack.kafka)
print(json.dumps([each.pid for each in servers] + [each.keeper_pid for each in servers]))
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""


def test_servers_start_break_and_end_with_the_program_where_only_what_macos_has_is_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITE)

    ran = subprocess.run(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )

    assert ran.returncode == -signal.SIGKILL, ran.stderr
    pids = json.loads(ran.stdout)
    until(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        within=40,
        what="the end of all servers",
    )
