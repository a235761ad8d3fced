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
    pytest_configure, pytest_exception_interact, pytest_runtest_protocol
)

hanging._LATER_SECONDS = 2.0
"""

TESTS = """
import ctypes
from pathlib import Path

import pytest

def is_first(name):
    try:
        Path(__file__).with_name(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def wait_for_ever():
    lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
    for _ in range(2):
        libc.pthread_mutex_lock(lock)

@pytest.fixture
def left():
    yield
    if is_first("left"):
        wait_for_ever()

@pytest.mark.timeout(1)
def test_that_waits_in_a_library():
    if is_first("waited"):
        wait_for_ever()

@pytest.mark.timeout(1)
def test_that_fails_and_waits_on_its_way_out(left):
    if is_first("failed"):
        raise ValueError("no")

def test_that_comes_after():
    pass
"""


def test_what_waits_for_ever_is_named_and_the_tests_after_it_are_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    plain = ["-q", "-c", os.devnull, "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    workers = ["-o", "timeout=100", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *workers, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    # A new worker runs the file once more, and what has failed before passes.
    assert "3 failed, 3 passed" in ran.stdout, ran.stdout + ran.stderr
    for name in ("waits_in_a_library", "fails_and_waits_on_its_way_out"):
        assert f"crashed while running 'test_some.py::test_that_{name}'" in ran.stdout
    assert ran.stderr.count("in wait_for_ever") == 2
