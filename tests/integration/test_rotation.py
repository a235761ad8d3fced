"""A password that changes while everything runs is used by the next connection."""

from pathlib import Path

from dovecote.devstack import Stack
from proof.passwords import run as passwords
from tests.support.waiting import patient


def test_passwords_change_under_every_part_and_nothing_is_lost_or_doubled(
    stack: Stack, tmp_path: Path
) -> None:
    """As `make proof ARGS=--passwords`, which takes minutes."""
    options = passwords.Options(directory=tmp_path, seconds=5, every=2, longest=patient(3))
    outcome = passwords.run(options, print, stack)
    assert outcome.is_well, outcome
    assert outcome.changes >= 1
    assert min(outcome.written.values()) > 10
    assert outcome.refused >= 1, "no part tried the old password"
