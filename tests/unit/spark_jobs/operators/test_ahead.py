"""A record that is ahead of the wall clock moves no time of any operator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dedup.replay.replay import replay
from outbox.envelope import Record
from spark_jobs.operators.aggregation.settings import AggregationSettings
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.reading import OperatorSettings, many_reader
from spark_jobs.operators.replay import TracedOperator
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.operators.step import Failed, Late
from tests.unit.spark_jobs.operators.aggregation.steps import COUNT, loaded, step
from tests.unit.spark_jobs.operators.traces import golden, ms, record, sessions

NOW = 1_760_000_000_000
HOUR = 3_600_000
YEAR = 366 * 24 * HOUR
PAIRS = {"within": "1s", "sides": {"a": {"topic": "t"}, "b": {"topic": "u"}}}


def _sessions(**more: Any) -> SessionsSettings:
    return SessionsSettings.model_validate({"gap": "1s", "aggregate": "list", **more})


def _pairing(**more: Any) -> PairingSettings:
    return PairingSettings.model_validate({**PAIRS, **more})


def _lines(settings: OperatorSettings, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
    trace = [
        {"topic": "t", "partition": 0, "offset": n, "key": "k", "arrival": NOW, **each}
        for n, each in enumerate(records)
    ]
    found = replay(
        TracedOperator(settings),
        [json.dumps(each).encode() for each in [*trace, {"advance_to": NOW + HOUR}]],
    )
    return [dict(each) for each in found]


@pytest.mark.parametrize("time", ["per_key", "per_partition", "global"])
@pytest.mark.parametrize("make", [_sessions, _pairing])
def test_one_record_of_the_future_makes_no_other_late(make: Any, time: str) -> None:
    settings = make(stream_time=time, close_after="1m")
    records: list[dict[str, Any]] = [
        {"timestamp": NOW, "value": 0},
        {"timestamp": NOW + HOUR + 1, "value": "future"},
        {"timestamp": NOW + 10, "value": 1},
        {"timestamp": NOW + 20, "value": 2, "key": "other"},
    ]

    found = _lines(settings, *records)

    late = [each for each in found if each["kind"] == "late"]
    assert [each["value"] for each in late] == ["future"]
    assert (
        "is ahead of the clock, 2025-10-09T08:53:20+00:00, by more than max_ahead"
        in late[0]["reason"]
    )
    assert [each for each in found if each["kind"] == "result"]


def test_the_bound_is_a_setting_and_may_be_off() -> None:
    future = {"timestamp": NOW + 2 * HOUR, "value": "future"}
    now = {"timestamp": NOW, "value": 1}
    for bound, late in (("1h", ["future"]), ("3h", [1]), ("off", [1])):
        found = _lines(_sessions(max_ahead=bound), future, now)
        assert [each["value"] for each in found if each["kind"] == "late"] == late


def test_an_event_of_the_future_joins_no_window_and_makes_no_other_late(tmp_path: Path) -> None:
    settings: AggregationSettings = loaded(tmp_path, step(trigger={**COUNT, "count": 3}))
    times = [NOW, NOW + HOUR + 1, NOW + 10, NOW + 20]

    found = _lines(settings, *({"timestamp": each, "value": each} for each in times))

    assert [(each["kind"], each["value"]) for each in found] == [
        ("late", NOW + HOUR + 1),
        *(("result", each) for each in (NOW, NOW + 10, NOW + 20)),
    ]
    free = loaded(tmp_path, step(trigger={**COUNT, "count": 1}, maxAhead=None))
    (line,) = _lines(free, {"timestamp": NOW + HOUR + 1, "value": 1})
    assert line["kind"] == "result"


def test_a_record_that_would_wait_for_more_than_a_year_does_not_wait() -> None:
    dues = [NOW + YEAR, NOW + YEAR + 1, NOW * 1000]
    records = [
        {"timestamp": NOW, "value": n, "headers": {"dovecote_not_before": str(due)}}
        for n, due in enumerate(dues)
    ]

    found = _lines(DelaySettings(), *records)

    assert [(each["kind"], each["value"]) for each in found] == [("late", 1), ("late", 2)]


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_timestamps_in_other_units_are_understood_and_none_is_an_error(
    unit: int, tmp_path: Path
) -> None:
    every: tuple[OperatorSettings, ...] = _sessions(), _pairing(), loaded(tmp_path, step())
    for settings in every:
        failed: list[Failed] = []
        records = [Record("t", 0, 0, time, b"k", b"1", ()) for time in (NOW * unit, -1)]
        (found,) = many_reader(settings)(records, range(2), failed)
        assert found.time == NOW
        assert [each.reason for each in failed] == ["its timestamp, -1, is not a time since 1970"]


def test_late_records_do_not_keep_a_key_alive() -> None:
    operator = sessions(
        stream_time="per_key", emit="final", close_after=ms(100), forget_after=ms(1000)
    )
    state, _, _ = operator.step(operator.start(), golden("A:0:1 A:50:2"), 1)
    state, outputs, _ = operator.step(state, [record("A", 0, 3)], 90)
    assert isinstance(outputs[0], Late)
    state, outputs, _ = operator.step(state, [], 101)
    assert len(outputs) == 1
    for now in (500, 900):
        state, outputs, _ = operator.step(state, [record("A", 0, 4)], now)
        assert isinstance(outputs[0], Late)
    state, outputs, _ = operator.step(state, [record("A", 0, 5)], 1001)
    assert outputs == []


@pytest.mark.parametrize("emit", ["on_close", "on_pair"])
def test_late_events_do_not_keep_the_key_of_a_call_alive(emit: str) -> None:
    operator = Pairing(_pairing(close_after="100ms", forget_after="1s", emit=emit))
    state, _, _ = operator.step(operator.start(), golden("A:0:1 A:5000:2"), 1)
    state, outputs, _ = operator.step(state, [], 101)
    for now in (500, 900):
        state, outputs, _ = operator.step(state, [record("A", 0, 4), record("A", 5001, 5)], now)
        assert {type(each) for each in outputs} == {Late}
    state, outputs, _ = operator.step(state, [record("A", 0, 5)], 1001)
    assert outputs == []


@pytest.mark.parametrize("unit", [1_000, 1_000_000])
def test_replay_says_the_same_of_timestamps_in_other_units(unit: int) -> None:
    settings = _sessions(stream_time="per_key", close_after="5s", max_lag="1m")
    old = NOW - HOUR
    found = [
        _lines(
            settings,
            {"timestamp": old * each, "value": 1},
            {"timestamp": (old + 100) * each, "value": 2, "arrival": NOW + 20_000},
        )
        for each in (1, unit)
    ]
    assert found[0] == found[1]
    assert [each["value"] for each in found[1] if each["kind"] == "result"][-1] == [1, 2]
