"""The examples run with one command each, and give the documented results."""

import subprocess
import sys

from tests.support.documents import ROOT
from tests.support.waiting import patient


def test_flights_come_to_a_receiver_with_signatures_that_are_right() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.webhook"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(140),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "20 flights arrived, each with a signature that is right" in done.stdout
