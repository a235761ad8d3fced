from typing import Any

import pytest

from dedup.rules.policies.expressions import compile_filter, load_handler
from dedup.rules.policies.results import Done, NonRetriable, Output, Retry
from dovecote.demo.handler import FILTER
from outbox.envelope import ATTEMPT, Record, decode

passes = compile_filter(FILTER)
handle = load_handler("dovecote.demo.handler:publish")
MILLISECONDS = 1_357_034_400_000


def event(delay: int | None, type_: str = "FlightDeparted", *, attempt: int = 1) -> Any:
    headers = [("ce_id", b"1"), ("ce_type", type_.encode()), ("ce_time", b"2013-01-01T10:00:00Z")]
    if attempt > 1:
        headers.append((ATTEMPT, str(attempt).encode()))
    value = {
        "flight": "F",
        "tail": "N1",
        "row": "0-1",
        "departure_delay": delay,
        "arrival_delay": None if delay is None else delay - 1,
    }
    found = decode(Record("flights", 0, 0, 0, b"F", b"", headers))
    object.__setattr__(found, "value", value)
    return found


def published(delay: int) -> Done:
    value = {"flight": "F", "tail": "N1", "at": MILLISECONDS, "delay": delay, "row": "0-1"}
    return Done(outputs=(Output(value),))


def test_only_events_that_know_the_departure_pass_the_filter() -> None:
    assert passes(event(0))
    assert not passes(event(None))


def test_departures_and_arrivals_are_published_with_their_time() -> None:
    assert handle(event(7)) == published(7)
    assert handle(event(300, "FlightArrived")) == published(299)


def test_a_long_delay_is_looked_at_twice() -> None:
    assert handle(event(300)) == Retry("F: a delay of 300 minutes is not confirmed yet")
    assert handle(event(300, attempt=2)) == published(300)


def test_an_impossible_departure_is_a_dead_letter() -> None:
    with pytest.raises(NonRetriable, match="F cannot have left 30 minutes early"):
        handle(event(-30))


def test_a_value_that_is_no_object_is_a_dead_letter() -> None:
    broken = event(0)
    object.__setattr__(broken, "value", [1])
    with pytest.raises(NonRetriable, match="is not an object"):
        handle(broken)
