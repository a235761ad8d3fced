"""The auditor says what an open row or an open record means."""

from typing import Any

import pytest

from dovecote.audit.rules.verdict import SKEW, Alone, Gap, Open, of_record, of_row

HOUR = 3_600_000
NOW = 1_800_000_000_000


def row(**more: Any) -> str:
    given = {
        "appended": NOW - HOUR,
        "was_parked": False,
        "anew_at": 0,
        "gaps": (),
        "kept_for": None,
        "superseded": False,
        "now": NOW,
    }
    return of_row(Open(**{**given, **more}))


GAP = (Gap(0, 10, NOW - HOUR),)


@pytest.mark.parametrize(
    ("given", "is_"),
    [
        pytest.param({}, "lost", id="nothing explains it"),
        pytest.param({"was_parked": True}, "dropped", id="an operator dropped it"),
        pytest.param({"superseded": True}, "compacted", id="compacted"),
        pytest.param({"anew_at": NOW}, "unjudged", id="the topic was made anew since"),
        pytest.param({"anew_at": NOW - 2 * HOUR}, "lost", id="the topic was made anew before"),
        pytest.param({"gaps": GAP}, "unjudged", id="deleted, by size too"),
        pytest.param({"gaps": GAP, "kept_for": HOUR}, "unjudged", id="deleted when it was time"),
        pytest.param({"gaps": GAP, "kept_for": 2 * HOUR}, "lost", id="deleted too early"),
        pytest.param(
            {"gaps": GAP, "appended": NOW - HOUR + SKEW}, "unjudged", id="in the bounds of clocks"
        ),
        pytest.param(
            {"gaps": GAP, "appended": NOW - HOUR + SKEW + 1}, "lost", id="written after the gap"
        ),
        pytest.param({"kept_for": HOUR}, "lost", id="kept, and nothing was deleted"),
    ],
)
def test_an_open_row(given: dict[str, Any], is_: str) -> None:
    assert row(**given) == is_


def record(**more: Any) -> str:
    given = {
        "at": NOW,
        "made": NOW,
        "first": None,
        "own": (0, 1, 7),
        "has_row": False,
        "at_least_once": False,
        "blind": (),
    }
    return of_record(Alone(**{**given, **more}))


BLIND = ((NOW - 2 * HOUR, NOW - HOUR, NOW - HOUR),)


@pytest.mark.parametrize(
    ("given", "is_"),
    [
        pytest.param({}, "phantom", id="no row and no record before"),
        pytest.param({"first": (0, 1, 7)}, "again", id="the same record, read again"),
        pytest.param({"first": (1, 1, 7)}, "new_topic", id="its topic was made anew"),
        pytest.param({"first": (0, 1, 3)}, "doubled", id="a second record"),
        pytest.param({"has_row": True}, "doubled", id="its row was matched long ago"),
        pytest.param({"first": (0, 1, 3), "at_least_once": True}, "repeat", id="at least once"),
        pytest.param({"has_row": True, "at_least_once": True}, "repeat", id="the same, forgotten"),
        pytest.param({"blind": BLIND}, "phantom", id="after a time that was not looked at"),
        pytest.param(
            {"blind": BLIND, "at": NOW - 90 * 60_000, "made": NOW - 90 * 60_000},
            "unjudged",
            id="in a time that was not looked at",
        ),
        pytest.param(
            {"blind": BLIND, "at": NOW - 90 * 60_000, "made": None},
            "unjudged",
            id="the same, and the id says no time",
        ),
        pytest.param(
            {"blind": BLIND, "at": NOW - 3 * HOUR, "made": None},
            "phantom",
            id="before it, and the id says no time",
        ),
        pytest.param(
            {"blind": BLIND, "at": NOW - 3 * HOUR, "made": NOW - 3 * HOUR},
            "unjudged",
            id="older than all that was read",
        ),
    ],
)
def test_an_open_record(given: dict[str, Any], is_: str) -> None:
    assert record(**given) == is_
