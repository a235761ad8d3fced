"""The fate of a record that is not done."""

from datetime import UTC, datetime, timedelta

import pytest

from dedup.retries.backoff import Backoff
from dedup.retries.fate import DeadLetter, Fate, Later, decide
from dedup.retries.tenacity import Tenacity
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again, Dead, Retry
from outbox.envelope import Delivery

NOW = 1_800_000_000_000
BACKOFF = Backoff(base=timedelta(seconds=8), ceiling=timedelta(minutes=1), max_attempts=3)


def fate(result: Again | Retry | Dead, **went_through: int) -> Fate:
    return decide(
        result,
        identity=Identity("/s", "e1"),
        delivery=Delivery(**went_through),  # type: ignore[arg-type]  # all of these are numbers
        now=NOW,
        patience=BACKOFF,
    )


def test_a_failure_waits_as_the_backoff_says() -> None:
    wait = BACKOFF.wait(Identity("/s", "e1"), attempt=2)

    assert fate(Retry("down"), attempt=2) == Later(
        NOW + round(wait.total_seconds() * 1000), "down"
    )


def test_a_handler_says_how_long_but_not_how_often() -> None:
    result = Retry("busy", timedelta(minutes=7))

    assert fate(result, attempt=2) == Later(NOW + 7 * 60_000, "busy")
    assert fate(result, attempt=3) == DeadLetter("busy")


@pytest.mark.parametrize("attempt", [1, 2, 3, 1000])
def test_no_number_of_rounds_makes_a_dead_letter(attempt: int) -> None:
    again = Again(timedelta(seconds=1))

    assert fate(again, attempt=attempt, round=10**6) == Later(NOW + 1000, None)


def test_what_failed_for_good_is_dead_at_once() -> None:
    assert fate(Dead("closed")) == DeadLetter("closed")


def test_the_time_since_the_first_attempt_counts_in_whichever_process_that_was() -> None:
    patience = Tenacity(lambda _: 1.0, lambda state: state.seconds_since_start >= 60)

    def after(seconds: int) -> Fate:
        return decide(
            Retry("down"),
            identity=Identity("/s", "e1"),
            delivery=Delivery(first_seen=NOW - seconds * 1000),
            now=NOW,
            patience=patience,
        )

    assert after(59) == Later(NOW + 1000, "down")
    assert after(60) == DeadLetter("down")
    # A clock that was set back is no reason to give up, or to fail.
    assert after(-60) == Later(NOW + 1000, "down")


@pytest.mark.parametrize("result", [Again(timedelta.max), Retry("503", timedelta.max)])
def test_the_longest_wait_is_a_time_that_every_part_can_hold(result: Again | Retry) -> None:
    later = fate(result, attempt=1)
    assert isinstance(later, Later)
    due = datetime.fromtimestamp(later.due / 1000, UTC)
    assert due - datetime.fromtimestamp(NOW / 1000, UTC) == timedelta(days=36_500)
