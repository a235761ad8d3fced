"""How long failed records wait."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from dedup.retries.backoff import Backoff, Failure
from dedup.rules.identity import Identity

BACKOFF = Backoff(base=timedelta(seconds=1), ceiling=timedelta(minutes=5), max_attempts=4)


@given(st.text(), st.integers(0, 50), st.integers(1, 200))
def test_a_wait_is_between_half_of_the_full_wait_and_all_of_it(
    id_: str, round_: int, attempt: int
) -> None:
    full = min(2.0 ** (attempt - 1), 300.0)

    wait = BACKOFF.wait(Identity("/s", id_, round_), attempt=attempt).total_seconds()

    assert full / 2 <= wait <= full


def test_the_same_record_waits_as_long_when_its_batch_is_evaluated_again() -> None:
    assert BACKOFF.wait(Identity("/s", "a", 1), attempt=3) == BACKOFF.wait(
        Identity("/s", "a", 1), attempt=3
    )


def test_records_that_fail_together_do_not_come_back_together() -> None:
    waits = {BACKOFF.wait(Identity("/s", str(n)), attempt=1) for n in range(100)}

    assert len(waits) == 100


def test_each_round_of_a_record_waits_differently() -> None:
    assert BACKOFF.wait(Identity("/s", "a"), attempt=1) != BACKOFF.wait(
        Identity("/s", "a", 1), attempt=1
    )


def test_the_last_attempt_exhausts_a_record() -> None:
    assert [BACKOFF.is_exhausted(attempt) for attempt in (1, 3, 4, 5)] == [
        False,
        False,
        True,
        True,
    ]


def test_after_the_last_attempt_there_is_no_wait() -> None:
    failures = [Failure(identity=Identity("/s", "a"), attempt=attempt) for attempt in (1, 3, 4)]

    assert [BACKOFF.after(failure) is None for failure in failures] == [False, False, True]
