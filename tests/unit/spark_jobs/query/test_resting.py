"""An idle query's empty batch lasts until something is due, or comes."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta

import pytest

from outbox.errors import BadSettings
from spark_jobs.query import resting
from spark_jobs.query.batch import Alarms
from spark_jobs.query.resting import Rest
from spark_jobs.rows.buckets import NONE
from tests.support.waiting import until

ENDS = {"t": {0: 7}}
TRIGGER = timedelta(milliseconds=50)
BEATS = 4


class Beats:
    """Counts the held beats, and asks to stop after some."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.held = 0

    def __call__(self) -> None:
        self.held += 1
        if self.held == BEATS:
            self.stop.set()


def _rest(
    *, has_come: Callable[[object], bool] = lambda _: False, stored: Callable[[], Alarms] = dict
) -> Rest:
    return Rest(TRIGGER, has_come=has_come, stored=stored)


def _now() -> int:
    return time.time_ns() // 1_000_000


def test_a_batch_is_held_while_nothing_comes_until_the_query_is_to_stop() -> None:
    beats = Beats()
    with closing(_rest()) as rest:
        rest.stepped(0, {"1": NONE, "2": _now() + 60_000})

        held = rest.hold(ENDS, beats.stop, beats)

    assert beats.held == BEATS
    assert held >= (BEATS - 1) * TRIGGER.total_seconds()


def test_it_is_over_at_the_first_beat_behind_an_alarm() -> None:
    beats = Beats()
    alarm = _now() + 75
    with closing(_rest()) as rest:
        rest.stepped(0, {"1": alarm})

        rest.hold(ENDS, beats.stop, beats)

    assert beats.held < BEATS
    assert _now() >= alarm


def test_it_is_over_when_something_has_come_behind_what_was_read() -> None:
    beats = Beats()
    asked: list[object] = []

    def has_come(ends: object) -> bool:
        asked.append(ends)
        return len(asked) == 3

    with closing(_rest(has_come=has_come)) as rest:
        rest.stepped(0, {})
        rest.hold(ENDS, beats.stop, beats)

    assert asked == [ENDS] * 3
    assert beats.held == 2


def test_it_is_over_before_spark_lets_its_workers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "_LONGEST_SECONDS", 0.15)
    beats = Beats()
    with closing(_rest()) as rest:
        rest.stepped(0, {})
        rest.hold(ENDS, beats.stop, beats)

    assert beats.held < BEATS


def test_nothing_is_held_before_it_is_known_how_far_was_read() -> None:
    beats = Beats()
    with closing(_rest()) as rest:
        rest.stepped(0, {})

        assert rest.hold({}, beats.stop, beats) == 0
    assert beats.held == 0


def test_where_one_batch_is_to_follow_the_other_it_is_held_for_short_beats() -> None:
    beats = Beats()
    with closing(Rest(timedelta(0), has_come=lambda _: False, stored=dict)) as rest:
        rest.stepped(0, {})

        held = rest.hold(ENDS, beats.stop, beats)

    assert beats.held == BEATS
    assert 0 < held < BEATS


def test_nothing_is_held_where_that_would_save_no_batch() -> None:
    beats = Beats()
    with closing(Rest(timedelta(minutes=1), has_come=lambda _: False, stored=dict)) as rest:
        rest.stepped(0, {})

        assert rest.hold(ENDS, beats.stop, beats) == 0


def test_behind_a_start_the_alarms_are_read_when_the_query_has_been_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[int] = []

    def stored() -> Alarms:
        reads.append(1)
        return {"1": _now() + 60_000}

    beats = Beats()
    with closing(_rest(stored=stored)) as rest:
        rest.stepped(12, {"2": NONE})
        assert rest.hold(ENDS, beats.stop, beats) == 0
        assert reads == []

        monkeypatch.setattr(resting, "_QUIET_SECONDS", 0.0)
        until(lambda: rest.hold(ENDS, beats.stop, beats), within=10, what="it is held")

    assert reads == [1]
    assert beats.held == BEATS


def test_where_they_cannot_be_read_nothing_is_held_and_that_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stored() -> Alarms:
        msg = "there is no state"
        raise BadSettings(msg)

    monkeypatch.setattr(resting, "_QUIET_SECONDS", 0.0)
    beats = Beats()
    with closing(_rest(stored=stored)) as rest:
        rest.stepped(12, {})
        for _ in range(3):
            assert rest.hold(ENDS, beats.stop, beats) == 0
        until(lambda: caplog.records, within=10, what="it is told")
        for _ in range(3):
            assert rest.hold(ENDS, beats.stop, beats) == 0

    assert [each.getMessage() for each in caplog.records] == [
        "an idle query goes on with batches at each trigger: there is no state"
    ]
