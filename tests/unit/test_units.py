"""The systemd units: systemd accepts them, they are confined, and in step with the processes."""

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from dedup.settings.consumer import ConsumerSettings
from dovecote.cli.consume.run import _LONGEST_END as CONSUMER_ENDS
from dovecote.cli.push.serve import _LONGEST_END as PUSH_ENDS
from dovecote.cli.relay.run import _LONGEST_END as RELAY_ENDS
from tests.support.documents import ROOT
from tests.support.waiting import patient

UNITS = sorted((ROOT / "compose/systemd").iterdir())
MOST_EXPOSED = 20
"""Out of 100, as systemd counts; a unit that confines nothing has 96."""

MOST_SECONDS = {
    "dovecote-relay.service": RELAY_ENDS,
    "dovecote-push.service": PUSH_ENDS + 10,
    "dovecote-consume@.service": CONSUMER_ENDS
    + ConsumerSettings.model_fields["drain"].default / timedelta(seconds=1),
}


def analysed(*arguments: str) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze: install systemd")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=patient(60), check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def here(unit: Path, folder: Path) -> str:
    """Return a copy that names a program and a user of this machine."""
    text = unit.read_text(encoding="utf-8")
    text = text.replace("/opt/dovecote/bin/dovecote", "/bin/true").replace(
        "User=dovecote", "User=daemon"
    )
    copy = folder / unit.name.replace("@", "@billing")
    copy.write_text(text, encoding="utf-8")
    return str(copy)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    assert analysed("verify", "--man=no", here(unit, tmp_path)) == ""


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_is_confined(unit: Path, tmp_path: Path) -> None:
    threshold = ("--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager")
    analysed("security", *threshold, here(unit, tmp_path))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_waits_for_as_long_as_its_process_may_take(unit: Path) -> None:
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    assert int(stop) > MOST_SECONDS[unit.name]


def test_the_units_are_confined_alike() -> None:
    confined = {unit.read_text().partition("# It sees its own files")[2] for unit in UNITS}
    assert len(confined) == 1
