import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dovecote.devstack.processes import Process
from tests.support.waiting import patient, until


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_is_the_same_as_long_as_it_runs() -> None:
    me = Process.of(os.getpid())
    assert me is not None
    assert me.running
    assert me == Process.of(os.getpid())


def test_a_process_that_has_ended_does_not_run_even_unreaped(
    child: subprocess.Popen[bytes],
) -> None:
    process = Process.of(child.pid)
    assert process is not None
    child.kill()
    until(lambda: not process.running, within=10, what="the child has ended")
    child.wait(patient(10))
    assert Process.of(child.pid) is None


def test_a_process_is_terminated(child: subprocess.Popen[bytes]) -> None:
    process = Process.of(child.pid)
    assert process is not None

    process.terminate()

    assert child.wait(patient(10)) == -signal.SIGTERM
    process.terminate()  # nothing is left to be signalled


def test_another_process_with_the_same_id_is_not_signalled(child: subprocess.Popen[bytes]) -> None:
    Process(child.pid, began="at another time").terminate()

    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
