"""A caller that waits for Kafka to have its event is told what is known."""

from hashlib import sha256
from typing import Any

import pytest

from outbox import BadSettings, Event, Parked, Published
from outbox.waiting.results import (
    Lane,
    lane_of,
    next_pause,
    require_timeout,
    timed_out,
    told,
)

LANE = Lane("orders", b"order 42")


def test_all_that_has_left_with_nothing_parked_is_published() -> None:
    assert told(LANE, left=True, free=True, after=0.5) == Published(0.5)


def test_what_is_parked_once_all_have_left_names_the_command_that_lists_it() -> None:
    found = told(LANE, left=True, free=False, after=0.5)
    assert isinstance(found, Parked)
    assert "key 'order 42'" in found.said
    assert "`dovecote relay parked list --topic orders`" in found.said


def test_what_is_parked_before_all_have_left_may_be_another_and_is_waited_for() -> None:
    assert told(LANE, left=False, free=False, after=0.5) is None


def test_the_lane_is_that_of_the_topic_and_the_key() -> None:
    text, raw = (Event(topic="t", type="T", key=key) for key in ("ü", "ü".encode()))
    assert lane_of(text) == lane_of(raw)
    assert lane_of(text).digest == sha256("t\0ü".encode()).digest()


def test_an_event_without_a_key_is_refused() -> None:
    with pytest.raises(BadSettings, match="has no key"):
        lane_of(Event(topic="t", type="T"))


@pytest.mark.parametrize("wrong", [-1, 86_401, float("nan"), "2", None, True])
def test_a_timeout_that_no_caller_can_mean_is_refused(wrong: Any) -> None:
    with pytest.raises(BadSettings, match="timeout="):
        require_timeout(wrong)


def test_looks_grow_rarer_up_to_one_a_second() -> None:
    pause, pauses = 0.1, []
    for _ in range(8):
        pauses.append(pause)
        pause = next_pause(pause)
    assert pauses == sorted(pauses)
    assert pause == 1.0


def test_a_caller_whose_time_is_over_is_told_whom_to_ask() -> None:
    assert "within 2.5 s" in timed_out(2.5).said
    assert "dovecote relay doctor" in timed_out(2.5).said
