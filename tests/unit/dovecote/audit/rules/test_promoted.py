"""Commits are missing where a successor begins before what was read."""

import pytest

from dovecote.audit.rules.promoted import Reach, lacks_commits


@pytest.mark.parametrize(
    ("known", "now", "lacks"),
    [
        (Reach(1, 500), Reach(2, 900, 400), True),
        (Reach(1, 500), Reach(2, 900, 500), False),
        (Reach(1, 500), Reach(2, 900, None), False),
        (Reach(1, 500), Reach(3, 900, 400), False),
        (Reach(2, 500, 400), Reach(2, 900, 400), False),
        (Reach(0, 500), Reach(1, 900, 400), False),
        (Reach(1, 500), Reach(), False),
    ],
)
def test_a_successor_lacks_commits_if_it_was_promoted_before_them(
    known: Reach, now: Reach, *, lacks: bool
) -> None:
    assert lacks_commits(known, now) is lacks
