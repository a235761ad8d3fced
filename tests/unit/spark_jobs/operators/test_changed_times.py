"""A restart with other settings closes by them in its first batch, with no record."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.scripts import Scripts
from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import PairingSettings, SessionsSettings
from spark_jobs.operators.step import Input, Operator, Output
from tests.unit.spark_jobs.operators.aggregation.steps import COUNT, event, loaded, step, values
from tests.unit.spark_jobs.operators.traces import brief, record

NOW = 1_760_000_000_000
DAY = datetime(2025, 10, 9, tzinfo=UTC)


def _at(hour: int) -> int:
    return round(DAY.replace(hour=hour).timestamp() * 1000)


def _sessions(**more: Any) -> Operator[Any]:
    return Sessions(SessionsSettings.model_validate({"gap": "10s", "close_after": "1h", **more}))


def _pairing(**more: Any) -> Operator[Any]:
    sides = {"a": {"topic": "t"}, "b": {"topic": "u"}}
    table = {"within": "10s", "close_after": "1h", "sides": sides, **more}
    return Pairing(PairingSettings.model_validate(table))


def _restarted(
    before: Operator[Any], after: Operator[Any], records: list[Input], now: int, then: int
) -> list[Output]:
    state, outputs, _ = before.step(before.start(), records, now)
    assert outputs == []
    return after.step(decode(after, encode(before, state)), [], then).outputs


@pytest.mark.parametrize("emit", ["on_close", "on_pair"])
def test_a_shorter_wait_closes_what_is_open_for_longer(emit: str) -> None:
    records = [record("A", NOW, 1)]
    for make, more in ((_sessions, {}), (_pairing, {"emit": emit})):
        shorter = make(close_after="1m", **more)
        assert len(_restarted(make(**more), shorter, records, NOW, NOW + 60_000)) == 1
        assert _restarted(make(**more), shorter, records, NOW, NOW + 59_000) == []


@pytest.mark.parametrize("time", ["per_key", "per_partition", "global"])
def test_a_shorter_gap_or_grace_closes_what_stream_time_has_passed(time: str) -> None:
    records = [record("A", NOW, 1), record("A", NOW + 5_000, 2, offset=1)]
    longer, shorter = (
        _sessions(grace=grace, gap="1s", stream_time=time) for grace in ("1h", "0s")
    )
    (closed,) = _restarted(longer, shorter, records, NOW, NOW)
    assert brief(closed)[:4] == ("result", "A", NOW, NOW)
    pairs = [record("A", NOW, 1), record("A", NOW + 15_000, 2, offset=1)]
    longer, shorter = (_pairing(grace=grace, stream_time=time) for grace in ("1h", "0s"))
    (closed,) = _restarted(longer, shorter, pairs, NOW, NOW)
    assert brief(closed)[:3] == ("result", "A", NOW)


def _step(folder: Path, trigger: dict[str, Any], **scripts: str) -> Aggregation:
    settings = loaded(folder, step(trigger=trigger), **scripts)
    return Aggregation(settings, Scripts(settings))


def _first_batch(
    before: Aggregation, after: Aggregation, *, opened: int, then: int
) -> tuple[list[Any], int | None]:
    given = event(n=1, time=NOW)
    state, _, _ = before.step(before.start(), [Input(b"k", NOW, given, "t", 0, 0)], opened)
    done = after.step(decode(after, encode(before, state)), [], then)
    return values(done.outputs), done.deadline


@pytest.mark.parametrize(
    ("time", "zone", "fires", "deadline"),
    [
        ("11", "UTC", True, None),  # is over today
        ("13", "UTC", False, _at(13)),
        ("13", "Europe/Berlin", True, None),
        ("18", "UTC", False, _at(18)),  # as it was
        ("08", "UTC", False, _at(8) + 86_400_000),  # was over when the window opened
    ],
)
def test_another_time_of_day_fires_at_it(
    tmp_path: Path, time: str, zone: str, deadline: int | None, *, fires: bool
) -> None:
    daily = {"type": "time", "timePattern": "HH", "time": "18", "maxEmptyIntervals": 9}
    before = _step(tmp_path, daily)
    after = _step(tmp_path, {**daily, "time": time, "timeZone": zone})

    found, next_ = _first_batch(before, after, opened=_at(9), then=_at(12))

    assert found == ([{"n": 1}] if fires else [])
    if deadline is not None:
        assert next_ == deadline


def test_another_zone_of_the_times_in_events_counts_at_once(tmp_path: Path) -> None:
    daily = {"type": "timeFromEvent", "path": "time.star", "timePattern": "HH"}
    script = {"time": "def time(IN, Env):\n    return '13'\n"}
    before = _step(tmp_path, daily, **script)
    after = _step(tmp_path, {**daily, "timeZone": "Europe/Berlin"}, **script)

    assert _first_batch(before, after, opened=_at(9), then=_at(11))[0] == [{"n": 1}]
    assert _first_batch(before, before, opened=_at(9), then=_at(11)) == ([], _at(13))


def test_a_shorter_timeout_of_a_window_counts_at_once(tmp_path: Path) -> None:
    before = _step(tmp_path, {**COUNT, "timeout": 3_600_000})
    after = _step(tmp_path, {**COUNT, "timeout": 60_000})
    assert _first_batch(before, after, opened=NOW, then=NOW + 60_000)[0] == [{"n": 1}]
