from typing import Any

import pytest

from dedup.expressions import compile_filter, load_handler
from dedup.results import Done, NonRetriable, Output, Retry
from demo.handler import FILTER
from outbox import Event

passes = compile_filter(FILTER)
handle = load_handler("demo.handler:publish_departure")


def event(delay: int | None, type_: str = "FlightDeparted") -> Event:
    value: dict[str, Any] = {"flight": "F", "row": "0-1", "departure_delay": delay}
    return Event(topic="flights", key="F", type=type_, value=value)


def test_only_events_that_know_the_departure_pass_the_filter() -> None:
    assert passes(event(0))
    assert not passes(event(None))


def test_a_departure_is_published() -> None:
    published = {
        "flight": "F",
        "departure_delay": 7,
        "known_from": "FlightDeparted",
        "row": "0-1",
    }
    assert handle(event(7)) == Done(outputs=(Output(published),))


def test_an_unconfirmed_departure_is_tried_again() -> None:
    assert handle(event(300)) == Retry("F: a delay of 300 minutes is not confirmed yet")


def test_an_impossible_departure_is_a_dead_letter() -> None:
    with pytest.raises(NonRetriable, match="F cannot have left 30 minutes early"):
        handle(event(-30))


def test_a_value_that_is_no_object_is_a_dead_letter() -> None:
    with pytest.raises(NonRetriable, match="is not an object"):
        handle(Event(topic="flights", type="FlightDeparted", value=[1]))
