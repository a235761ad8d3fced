"""
A program that is asked to end while it is loaded.

A module that it imports asks: a clock would meet another line on each machine.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovecote.process.signals import beginning
from tests.support.waiting import patient

ROOT = Path(__file__).resolve().parents[4]

_COMMAND = ("-c", "from dovecote.cli.main import main; main()")
_MODULE = ("-m", "dovecote")
_JOBS = sorted(str(each) for each in (ROOT / "spark_jobs/jobs").glob("*_stream.py"))


def _ended(folder: Path, stub: str, number: signal.Signals, *words: str) -> tuple[int, str]:
    """Return how Python ends that gets a signal when it imports `stub`, and what it prints."""
    (folder / f"{stub}.py").write_text(
        f"import os\nos.kill(os.getpid(), {int(number)})\nraise RuntimeError('it went on')\n"
    )
    found = os.pathsep.join([str(folder), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("program", [_COMMAND, _MODULE], ids=["command", "module"])
@pytest.mark.parametrize(
    ("stub", "words"),
    [
        ("typer", ["--help"]),  # before there is any command
        ("psycopg", ["relay", "run"]),
        ("pydantic", ["consume", "run"]),
        ("pydantic", ["console"]),
        ("fastapi", ["push", "serve"]),
        ("pydantic", ["spark", "dedup"]),
    ],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_ctrl_c_ends_a_command_that_is_loaded_without_a_traceback(
    tmp_path: Path, program: tuple[str, ...], stub: str, words: list[str]
) -> None:
    assert _ended(tmp_path, stub, signal.SIGINT, *program, *words) == (130, "")


@pytest.mark.parametrize("stub", ["typer", "pydantic"])
def test_sigterm_ends_a_command_that_is_loaded_without_a_traceback(
    tmp_path: Path, stub: str
) -> None:
    ended = _ended(tmp_path, stub, signal.SIGTERM, *_COMMAND, "consume", "run")
    assert ended == (-signal.SIGTERM, "")


@pytest.mark.parametrize("job", _JOBS, ids=lambda each: Path(each).stem)
@pytest.mark.parametrize("stub", ["pydantic", "pyspark"])
def test_ctrl_c_ends_a_program_for_spark_submit_without_a_traceback(
    tmp_path: Path, job: str, stub: str
) -> None:
    assert _ended(tmp_path, stub, signal.SIGINT, job) == (130, "")


def test_the_programs_for_spark_submit_are_found() -> None:
    assert len(_JOBS) == 4


def test_ctrl_c_ends_a_health_check_without_a_traceback(tmp_path: Path) -> None:
    asks = (
        "import dovecote.process.http.probe as it\n"
        "def interrupted(*_):\n    raise KeyboardInterrupt\nit.ask = interrupted\nit.main()\n"
    )
    assert _ended(tmp_path, "unused", signal.SIGINT, "-c", asks) == (130, "")


def test_after_the_beginning_ctrl_c_is_an_exception_again() -> None:
    with beginning():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_that_ignores_ctrl_c_still_does_at_its_beginning() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with beginning():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
