"""Any time and any place selects dead letters, or none, and is no error."""

from datetime import UTC, datetime

import pytest

from dedup.retries.letter import Letter
from dovecote.push.api.dead import Chosen, Wanted
from dovecote.push.rules.subscription.subscription import subscription

SUBSCRIPTION = subscription(
    {"id": "s", "topics": ["orders"], "endpoint": {"url": "https://example.com/"}}
)
LETTER = Letter(
    at=(0, 7),
    id="e1",
    source="/shop",
    key=None,
    reason="404",
    attempts=1,
    origin="orders/0/1",
    group=None,
    died_at=datetime(2026, 2, 1, tzinfo=UTC),
    size=1,
    without_value=False,
    left=None,
)
# In UTC they are in the years 0 and 10000, which a datetime cannot be in.
FIRST, LAST = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"


def test_times_at_both_ends_of_the_calendar_select_letters() -> None:
    for meant in (Chosen(since=FIRST, until=LAST), Wanted(since=FIRST, until=LAST)):  # type: ignore[arg-type]  # as JSON has them
        assert meant.which(SUBSCRIPTION).has(LETTER)
    none = Chosen(since=LAST)  # type: ignore[arg-type]  # as above
    assert not none.which(SUBSCRIPTION).has(LETTER)


@pytest.mark.parametrize("offset", [10**22, 2**63, "x", -1])
def test_a_place_that_no_topic_has_selects_no_letter(offset: object) -> None:
    places = (f"{SUBSCRIPTION.dead_letters}/0/{offset}",)
    assert Chosen(places=places).which(SUBSCRIPTION).places == set()


def test_the_place_of_a_letter_selects_it() -> None:
    places = (f"{SUBSCRIPTION.dead_letters}/0/7", "other/0/8")
    assert Chosen(places=places).which(SUBSCRIPTION).places == {(0, 7)}
