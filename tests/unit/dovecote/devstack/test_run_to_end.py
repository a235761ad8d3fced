"""A program that prepares a server fails in time, and with its output."""

import sys
from pathlib import Path

import pytest

from dovecote.devstack.errors import ServerFailed
from dovecote.devstack.server import run_to_end
from tests.support.waiting import patient


def test_a_program_that_fails_is_said_with_its_output(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no room'); exit(3)"]
    with pytest.raises(ServerFailed, match=r"(?s)not made \(exit status 3\):.no room"):
        run_to_end(command, failure="not made", folder=tmp_path, seconds=patient(20))


def test_a_program_that_is_not_done_in_time_is_said_with_its_output(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo so far; exec sleep 600"]
    seconds = round(patient(0.5))
    why = rf"(?s)not made \(not done within {seconds} s\):.so far"
    with pytest.raises(ServerFailed, match=why):
        run_to_end(command, failure="not made", folder=tmp_path, seconds=seconds)
