"""A test that nothing interrupts is named, and the others are run."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import patient

ROOT = Path(__file__).parents[2]

CONFTEST = """
from tests.support import hanging
from tests.support.hanging import (
    pytest_configure, pytest_exception_interact, pytest_handlecrashitem,
    pytest_runtest_logstart, pytest_runtest_protocol
)

hanging._LATER_SECONDS = 1.0
"""

TESTS = """
import ctypes
from pathlib import Path

import pytest

def is_first(name, times=1):
    for number in range(times):
        try:
            Path(__file__).with_name(f"{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False

def wait_for_ever():
    lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
    for _ in range(2):
        libc.pthread_mutex_lock(lock)

@pytest.fixture
def left():
    yield
    if is_first("left"):
        wait_for_ever()

def test_that_waits_in_a_library():
    if is_first("waited"):
        wait_for_ever()

def test_that_fails_and_waits_on_its_way_out(left):
    if is_first("failed"):
        raise ValueError("no")

def test_that_waits_twice():
    if is_first("twice", times=2):
        wait_for_ever()

def test_that_comes_after():
    pass
"""


def test_what_waits_for_ever_is_named_and_run_once_more_and_the_others_are_run(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    plain = ["-q", "-rs", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    workers = ["-o", "timeout=3", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *workers, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    # A new worker runs again what was not done. One test has failed itself, and one waited twice.
    assert "2 failed, 4 passed, 3 skipped" in ran.stdout, ran.stdout + ran.stderr
    assert ran.stdout.count("s where nothing interrupts it; it is run again") == 3
    assert "crashed while running 'test_some.py::test_that_waits_twice'" in ran.stdout
    assert ran.stderr.count("in wait_for_ever") == 4
