"""The fate of a record, for each answer there is."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies.results import Dead, Done, Early, Retry
from dovecote.push.rules.sending.verdict import (
    Answered,
    Disable,
    NotAnswered,
    Rules,
    asked_wait,
    judge,
    retry_after,
    shows,
)
from dovecote.push.rules.subscription.sections import Backoff, Fixed

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
BACKOFF = Rules(is_dead=Backoff().is_dead)
FIXED = Rules(is_dead=Fixed(type="fixed").is_dead, obeys=False)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_success_is_2xx(status: int) -> None:
    assert judge(Answered(status), BACKOFF, now=NOW) == Done()
    assert judge(Answered(status), FIXED, now=NOW) == Done()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_a_failure(status: int) -> None:
    verdict = judge(Answered(status), BACKOFF, now=NOW)
    assert isinstance(verdict, Retry)
    assert "not followed" in verdict.error


ABOUT_THE_RECORD = {400, 413, 415, 422}


@pytest.mark.parametrize("status", sorted({*range(300, 600)} - ABOUT_THE_RECORD - {410, 429}))
def test_what_an_endpoint_answers_for_a_while_is_tried_again(status: int) -> None:
    assert isinstance(judge(Answered(status), BACKOFF, now=NOW), Retry)
    if status != 409:
        assert shows(Answered(status), BACKOFF) in {"failure", "overload"}


@pytest.mark.parametrize("status", sorted(ABOUT_THE_RECORD))
def test_answers_about_the_record_are_dead_letters_unless_the_subscription_says_otherwise(
    status: int,
) -> None:
    assert isinstance(judge(Answered(status), BACKOFF, now=NOW), Dead)
    kinder = Rules(is_dead=Backoff(dead_statuses=(418,)).is_dead)
    assert isinstance(judge(Answered(status), kinder, now=NOW), Retry)
    assert isinstance(judge(Answered(418), kinder, now=NOW), Dead)


def test_429_burns_no_attempt_and_is_no_failure() -> None:
    verdict = judge(Answered(429, "7"), BACKOFF, now=NOW)
    assert isinstance(verdict, Early)
    assert verdict.after == timedelta(seconds=7)
    assert shows(Answered(429), BACKOFF) == "limited"
    assert not isinstance(judge(Answered(429), FIXED, now=NOW), Early)
    assert shows(Answered(429), FIXED) == "failure"


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        # The endpoint's clock is a day behind ours.
        (Answered(429, "Wed, 31 Dec 2025 12:00:09 GMT", "Wed, 31 Dec 2025 12:00:00 GMT"), 9),
        (Answered(503, "Wed, 31 Dec 2025 12:00:09 GMT", "Wed, 31 Dec 2025 12:00:00 GMT"), 9),
        (Answered(429, "Thu, 01 Jan 2026 12:00:09 GMT", "no date"), 9),
        (Answered(429, "3", None, "60"), 3),
        (Answered(429, None, None, "60"), 60),
        (Answered(429, None, None, str(int(NOW.timestamp()) + 30)), 30),
        (Answered(429, None, "Wed, 31 Dec 2025 12:00:00 GMT", "1767182430"), 30),
        (Answered(429, None, None, "soon"), None),
        (Answered(503, None, None, "60"), None),
        (NotAnswered("x"), None),
    ],
)
def test_a_wait_is_read_by_the_clock_of_the_endpoint(
    answer: Answered | NotAnswered, seconds: int | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert asked_wait(answer, BACKOFF, now=NOW) == expected
    assert asked_wait(answer, FIXED, now=NOW) is None


def test_410_disables() -> None:
    assert isinstance(judge(Answered(410), BACKOFF, now=NOW), Disable)


@pytest.mark.parametrize("status", [301, 400, 404, 410, 429, 500])
def test_with_a_fixed_delay_all_are_tried_again_and_nothing_else_is_obeyed(status: int) -> None:
    verdict = judge(Answered(status, "3600"), FIXED, now=NOW)
    assert isinstance(verdict, Retry)
    assert verdict.after is None


def test_no_answer_is_tried_again() -> None:
    assert judge(NotAnswered("no connection"), BACKOFF, now=NOW) == Retry("no connection")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30),
        ("Thursday, 01-Jan-26 12:00:30 GMT", 30),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
    ],
)
def test_retry_after_is_read_in_both_its_forms(text: str, seconds: float | None) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert retry_after(text, now=NOW) == expected


@given(st.text(max_size=40))
def test_whatever_retry_after_says_it_raises_nothing(text: str) -> None:
    found = retry_after(text, now=NOW)
    assert found is None or found >= timedelta(0)


def test_retry_after_is_obeyed_up_to_a_day() -> None:
    verdict = judge(Answered(503, "7"), BACKOFF, now=NOW)
    assert isinstance(verdict, Retry)
    assert verdict.after == timedelta(seconds=7)
    longest = judge(Answered(429, "9999999999"), BACKOFF, now=NOW)
    assert isinstance(longest, Retry)
    assert longest.after == timedelta(hours=24)


@pytest.mark.parametrize("told", ["0", "Thu, 01 Jan 2026 11:00:00 GMT"])
def test_a_retry_after_that_is_over_leaves_the_wait_to_the_backoff(told: str) -> None:
    # An endpoint whose clock lags would use up all attempts at once.
    verdict = judge(Answered(503, told), BACKOFF, now=NOW)
    assert isinstance(verdict, Retry)
    assert verdict.after is None


def test_an_overload_an_answer_about_the_record_and_another_failure_are_told_apart() -> None:
    assert shows(NotAnswered("x"), BACKOFF) == "overload"
    assert {shows(Answered(status), BACKOFF) for status in (408, 500, 503, 599)} == {"overload"}
    assert {shows(Answered(status), BACKOFF) for status in (400, 409, 413, 415, 422)} == {
        "refusal"
    }
    assert {
        shows(Answered(status), BACKOFF) for status in (302, 401, 403, 404, 405, 407, 425)
    } == {"failure"}
    assert shows(Answered(410), BACKOFF) == "nothing"
    assert shows(Answered(410), FIXED) == "failure"


def test_a_status_that_the_subscription_gives_up_at_once_is_about_the_record() -> None:
    chosen = Rules(is_dead=Backoff(dead_statuses=(404, 503)).is_dead)
    assert shows(Answered(404), chosen) == "refusal"
    assert shows(Answered(503), chosen) == "overload"


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_whatever_the_headers_say_a_wait_is_a_day_at_most(
    told: str, date: str, reset: str
) -> None:
    found = asked_wait(Answered(429, told, date, reset), BACKOFF, now=NOW)
    assert found is None or timedelta(0) < found <= timedelta(hours=24)
