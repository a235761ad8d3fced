"""A caller that waits names an event, and a time that it can mean."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from dedup.rules.waiting import require_times, wanted
from outbox.errors import BadSettings
from outbox.event import Event

_ID = "0199f2c6-5cba-7c3e-8a53-1d0f6a2b7f10"


@dataclass
class Order:
    id: str


def test_an_event_and_its_id_are_the_same() -> None:
    event = Event(topic="orders", type="Placed", id=_ID, source="/shop")
    by_event = wanted(event, "dovecote", "shipping")
    assert by_event == wanted(_ID, "/shop", "shipping") == wanted(UUID(_ID), "/shop", "shipping")


@pytest.mark.parametrize("given", [Order("o-1"), {"id": "o-1"}, b"o-1", None, "", 7])
def test_what_is_no_event_is_refused_at_once_and_not_waited_for(given: object) -> None:
    with pytest.raises(BadSettings, match=r"neither an event nor the id.*as_event\(object\)"):
        wanted(given, "dovecote", "shipping")


@pytest.mark.parametrize("wrong", [-1, 86_401, float("nan"), "2", None, True])
def test_a_timeout_that_no_caller_can_mean_is_refused(wrong: Any) -> None:
    with pytest.raises(BadSettings, match="timeout="):
        require_times(wrong, None)


@pytest.mark.parametrize("wrong", [0, "1", float("nan"), True])
def test_an_interval_that_no_caller_can_mean_is_refused(wrong: Any) -> None:
    with pytest.raises(BadSettings, match="poll="):
        require_times(1, wrong)
