from datetime import timedelta

import pytest

from dedup.rules.policies.results import Again, Dead, NonRetriable, Retry, failure
from outbox.errors import DovecoteError, InvalidEvent


def test_an_exception_is_a_retry_that_names_its_class() -> None:
    assert failure(KeyError("amount")) == Retry("KeyError: 'amount'")
    assert failure(ValueError()) == Retry("ValueError")


def test_an_error_of_ours_speaks_for_itself() -> None:
    assert failure(InvalidEvent("event has no topic")) == Retry("event has no topic")


def test_a_non_retriable_error_is_dead() -> None:
    assert failure(NonRetriable("the account is closed")) == Dead("the account is closed")
    assert failure(NonRetriable()) == Dead("NonRetriable")
    assert issubclass(NonRetriable, DovecoteError)


@pytest.mark.parametrize("make", [Again, lambda after: Retry("busy", after)])
def test_a_wait_is_a_timedelta_that_is_not_negative(make: type[Again]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        make(timedelta(seconds=-1))
    with pytest.raises(TypeError, match="must be a timedelta, not 5"):
        make(5)  # type: ignore[arg-type]  # the mistake in question


def test_a_retry_need_not_say_when() -> None:
    assert Retry("busy").after is None
