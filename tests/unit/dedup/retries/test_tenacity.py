"""`tenacity`'s own objects decide how long a record waits."""

from datetime import timedelta

import pytest
import tenacity

from dedup.retries.backoff import Failure
from dedup.retries.tenacity import AttemptFailed, Tenacity
from dedup.rules.identity import Identity


def failed(attempt: int, seconds: float = 0.0) -> Failure:
    return Failure(
        identity=Identity("/s", "e1"), attempt=attempt, seconds=seconds, error="KeyError: 'a'"
    )


def test_waits_grow_with_the_attempt() -> None:
    patience = Tenacity(tenacity.wait_exponential(max=10), tenacity.stop_after_attempt(6))

    waits = [patience.after(failed(attempt)) for attempt in range(1, 7)]

    assert waits == [timedelta(seconds=seconds) for seconds in (1, 2, 4, 8, 10)] + [None]


def test_a_wait_that_is_longer_than_time_itself_is_the_longest_there_is() -> None:
    patience = Tenacity(tenacity.wait_exponential(), tenacity.stop_never)

    assert patience.after(failed(48)) == timedelta(days=timedelta.max.days)
    assert patience.after(failed(5_000)) == timedelta(days=timedelta.max.days)


@pytest.mark.parametrize("stop", [tenacity.stop_after_delay, tenacity.stop_before_delay])
def test_a_stop_by_time_looks_at_the_time_since_the_first_attempt(
    stop: type[tenacity.stop_after_delay],
) -> None:
    patience = Tenacity(tenacity.wait_fixed(5), stop(60))

    assert patience.after(failed(90, seconds=54)) == timedelta(seconds=5)
    assert patience.after(failed(2, seconds=60)) is None


def test_waits_add_up_and_stops_combine_as_tenacity_has_it() -> None:
    patience = Tenacity(
        tenacity.wait_fixed(1) + tenacity.wait_incrementing(start=1, increment=2),
        tenacity.stop_after_attempt(9) & tenacity.stop_after_delay(100),
    )

    assert patience.after(failed(3)) == timedelta(seconds=6)
    assert patience.after(failed(9, seconds=99)) is not None
    assert patience.after(failed(9, seconds=100)) is None


def test_a_wait_with_chance_in_it_stays_in_its_bounds() -> None:
    patience = Tenacity(tenacity.wait_random_exponential(max=8), tenacity.stop_never)

    for _ in range(100):
        assert timedelta(0) <= (patience.after(failed(9)) or timedelta(-1)) <= timedelta(seconds=8)


def test_a_wait_may_ask_for_the_error() -> None:
    def wait(error: BaseException) -> float:
        assert isinstance(error, AttemptFailed)
        return 7.0 if "KeyError" in str(error) else 0.0

    patience = Tenacity(tenacity.wait_exception(wait), tenacity.stop_never)

    assert patience.after(failed(1)) == timedelta(seconds=7)
