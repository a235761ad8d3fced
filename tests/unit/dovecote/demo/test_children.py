import os
import signal
from pathlib import Path

import psutil
import pytest

from dovecote.demo.children import Child, ChildFailed, module
from tests.support.waiting import until

PYTHON = module("x")[0]


def child(script: str, log: Path, **environment: str) -> Child:
    return Child("the child", [PYTHON, "-u", "-c", script], log, environment=environment)


def has_said(log: Path, text: str) -> None:
    until(lambda: text in log.read_text(), within=10, what=f"{text!r} in the log")


def ended(process: Child) -> int:
    until(lambda: process.status is not None, within=10, what="the child's end")
    assert process.status is not None
    return process.status


def test_a_child_is_the_command_itself_with_its_log_and_environment(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = child("import os; print(os.getpid(), os.environ['NOTE'])", log, NOTE="hush")
    assert ended(process) == 0
    assert log.read_text() == f"{process.pid} hush\n"


def test_a_child_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    process = child("print('no such thing'); raise SystemExit(3)", tmp_path / "log")
    assert ended(process) == 3
    assert process.said().startswith("the child ended with exit status 3.")
    assert process.said().endswith("\n  no such thing")


def test_a_killed_child_is_gone_at_once_even_if_it_was_paused(tmp_path: Path) -> None:
    process = child("print('here'); import signal; signal.pause()", tmp_path / "log")
    has_said(tmp_path / "log", "here")
    process.pause()
    process.kill()
    assert process.status == -signal.SIGKILL
    assert process.said().startswith("the child was ended by SIGKILL.")


def test_a_paused_child_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    process = child("print('here'); input_ = open('go').read(); print('there')", tmp_path / "log")
    process.pause()
    process.resume()
    assert ended(process) == 1  # there is no such file: it went on


def test_a_child_that_ends_well_when_asked_is_stopped(tmp_path: Path) -> None:
    script = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
        "print('here'); signal.pause()"
    )
    process = child(script, tmp_path / "log")
    has_said(tmp_path / "log", "here")
    process.stop(within=10)
    assert process.status == 0


def test_a_child_that_does_not_end_well_when_asked_is_an_error(tmp_path: Path) -> None:
    process = child("print('here'); import signal; signal.pause()", tmp_path / "log")
    has_said(tmp_path / "log", "here")
    with pytest.raises(ChildFailed, match="was ended by SIGTERM"):
        process.stop(within=10)


def test_a_child_that_does_not_end_when_asked_is_killed_and_an_error(tmp_path: Path) -> None:
    script = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here'); "
        "signal.sigwait([signal.SIGUSR1])"
    )
    process = child(script, tmp_path / "log")
    has_said(tmp_path / "log", "here")
    with pytest.raises(ChildFailed, match=r"did not end within 0\.1 s of SIGTERM"):
        process.stop(within=0.1)
    assert process.status == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux ties children")
def test_a_child_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from dovecote.demo.children import Child; "
        "c = Child('c', [sys.executable, '-uc', 'print(1); import signal; signal.pause()'], "
        "Path('inner')); print(c.pid); import os, signal; "
        "\nwhile not c.log.read_text(): pass"
        "\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    log, old = tmp_path / "log", Path.cwd()
    os.chdir(tmp_path)
    try:
        assert ended(child(script, log)) == -signal.SIGKILL
    finally:
        os.chdir(old)
    inner = int(log.read_text())
    until(lambda: not is_running(inner), within=10, what="the inner child's end")


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
