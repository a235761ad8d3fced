"""Our code asks for nothing that only Linux has; this is no macOS, and shows no more than that."""

import re
import subprocess
import sys

import pytest

from tests.support.documents import ROOT
from tests.support.like_macos import LINUX, OURS
from tests.support.waiting import patient

IMPORTED = """\
import importlib, sys
from tests.support import like_macos
names = list(like_macos.modules())
like_macos.become()
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert error.name and error.name.partition(".")[0] not in like_macos.OURS, error
print(len(names))
"""

FALLBACKS = """\
import mmap, os, signal, subprocess, sys, threading, time
from pathlib import Path
from tests.support import like_macos
like_macos.become()

from relay.postgres.capture.replication import Wake
wake = Wake()
threading.Timer(0.05, wake.set).start()
began = time.monotonic()
wake.wait(30)
assert time.monotonic() - began < 29
wake.wait(0)  # cleared
wake.close()

from spark_jobs.operators.aggregation.scripts.limits import SIZE, Limits
limits = Limits(mmap.mmap(-1, SIZE), milliseconds=1000, mebibytes=64)
limits.begin({})
assert limits.call(lambda: "x", 2**21) == "x"

from dovecote.push.api.own_token import kernels_tables
assert list(kernels_tables()) == []

from dovecote.process import memory
memory.keep_freed()

from dovecote.devstack.places import free_port, hold
held = hold(free_port())
assert held.getsockname()[1] == 0  # it would hinder the server
held.close()

from dovecote.devstack.processes import Process
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
process = Process.of(child.pid)
assert process.running and not Process(child.pid, "at another time").running
process.terminate()
assert child.wait(60) == -signal.SIGTERM
assert not process.running

from dovecote.devstack.postgres.programs import archive_of
assert archive_of("15").only == "embedded-postgres-binaries-darwin-arm64v8-15.19.0.jar"

from dovecote.demo import tether
sys.argv = ["tether", str(os.getppid()), "/bin/true"]
tether.main()
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_imported_where_only_what_macos_has_is_there() -> None:
    assert int(run(IMPORTED)) > 300


def test_the_other_way_works_where_linux_has_its_own() -> None:
    run(FALLBACKS)


NAMES = sorted(name for names in LINUX.values() for name in names)
# Each of these looks first at which system it is on.
GUARDED = {
    "dovecote/devstack/processes.py": {"pidfd_open", "pidfd_send_signal"},
    "dovecote/processes/parent.py": {"waitid", "memfd_create"},
}


@pytest.mark.parametrize("package", OURS)
def test_no_module_names_what_only_linux_has(package: str) -> None:
    """A name that is looked up in a function is missed by an import."""
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"\b(?:os|socket|signal|select)\.(\w+)", path.read_text())
        if name in NAMES
    }

    allowed = {(file, name) for file, names in GUARDED.items() for name in names}
    assert found <= allowed
