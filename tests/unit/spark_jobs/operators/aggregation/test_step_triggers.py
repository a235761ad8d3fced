"""Every window and trigger of the operator's manual; tests are named after its sections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from outbox.errors import BadSettings
from spark_jobs.operators.step import Late, Made
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DAILY,
    DSL,
    SUMS,
    event,
    loaded,
    reasons,
    running,
    step,
    values,
)


def test_w1_a_key_has_one_window_that_ends_by_the_gap_after_its_last_event(
    tmp_path: Path,
) -> None:
    trigger = {**COUNT, "count": 9, "shouldFireAtProcessingTime": False}
    given = running(
        tmp_path, step(trigger=trigger, dsl={"path": "aggregate.star"}), aggregate=SUMS
    )
    # Each is 100 after the last one, which is within the gap.
    assert given.at(1000, *(event(id=n, time=100 * n) for n in range(3))) == []
    said = given.at(1000, event(id=3, time=301))
    assert values(said) == [{"ids": [0, 1, 2]}]
    assert reasons(said) == ["gap"]


def test_w2_on_timeout_all_events_are_handed_over_and_the_window_is_cleared(
    tmp_path: Path,
) -> None:
    config = step(trigger={**COUNT, "count": 9}, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, aggregate=SUMS)
    given.at(1000, event(id=1, time=0), event(id=2, time=10))
    assert given.deadline == 1100
    assert given.at(1099) == []
    assert values(given.at(1100)) == [{"ids": [1, 2]}]
    assert given.at(5000) == []
    assert given.end(6000) == []


def test_w3_windows_are_merged_before_the_trigger_is_called(tmp_path: Path) -> None:
    given = running(
        tmp_path,
        step(
            trigger={**COUNT, "count": 3, "shouldFireAtProcessingTime": False},
            dsl={"path": "aggregate.star"},
        ),
        aggregate=SUMS,
    )
    given.at(0, event(id=1, time=500))
    assert given.at(0, event(id=2, time=600)) == []
    # Its window reaches into the first, and so do those after it, which it would miss by itself.
    (said,) = given.at(0, event(id=3, time=420))
    assert isinstance(said, Made)
    assert (said.start, said.end, said.events) == (420, 600, 3)


def test_w3_an_event_whose_window_is_closed_is_late(tmp_path: Path) -> None:
    given = running(
        tmp_path,
        step(trigger={**COUNT, "count": 9, "shouldFireAtProcessingTime": False}),
    )
    given.at(0, event(id=1, time=500))
    (late,) = given.at(0, event(id=2, time=399))
    assert isinstance(late, Late)
    assert (late.reason, late.close_time) == ("its window is closed", 400)
    assert given.at(0, event(id=2, time=400)) == []  # touching windows merge


def test_t1_count_fires_when_it_is_reached_and_clears(tmp_path: Path) -> None:
    trigger = {**COUNT, "count": 3}
    config = step(trigger=trigger, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, aggregate=SUMS)
    said = given.at(0, *(event(id=n, time=n) for n in range(7)))
    assert values(said) == [{"ids": [0, 1, 2]}, {"ids": [3, 4, 5]}]
    assert reasons(said) == ["count", "count"]


@pytest.mark.parametrize("trigger", [COUNT, DSL])
def test_t1_and_t2_timeout_is_required(tmp_path: Path, trigger: Mapping[str, Any]) -> None:
    given = {name: value for name, value in trigger.items() if name != "timeout"}
    with pytest.raises(BadSettings, match=r"trigger.timeout: is missing"):
        loaded(tmp_path, step(trigger=given), trigger="def trigger(IN, Env):\n    pass\n")


def test_t2_a_script_trigger_has_a_timeout_that_hands_over_and_clears(tmp_path: Path) -> None:
    given = running(
        tmp_path,
        step(trigger=DSL, dsl={"path": "aggregate.star"}),
        trigger="def trigger(IN, Env):\n    return 'continue'\n",
        aggregate=SUMS,
    )
    assert given.at(0, event(id=1)) == []
    assert given.at(60, event(id=2, time=60)) == []
    said = given.at(100)
    assert (values(said), reasons(said)) == ([{"ids": [1, 2]}], ["first_timeout"])


def test_t3_time_fires_once_a_day_and_forgets_keys_after_empty_intervals(tmp_path: Path) -> None:
    trigger = {**DAILY, "time": "11:05:00+03:00", "timePattern": "HH:mm:ssXXX"}
    config = step(trigger=trigger, dsl={"path": "aggregate.star"}, stateFull=True)
    given = running(tmp_path, config, aggregate=SUMS)
    day, fires = 86_400_000, (8 * 60 + 5) * 60_000
    assert given.at(0, event(id=1)) == []
    assert given.deadline == fires
    assert given.at(fires - 1, event(id=2, time=99_999_999)) == []  # there is no gap
    said = given.at(fires)
    assert (values(said), reasons(said)) == ([{"ids": [1, 2]}], ["time"])
    for empty in (1, 2):
        assert given.at(fires + empty * day) == []
        assert given.deadline == fires + (empty + 1) * day
    assert list(given.state.keys) == [b"k"]
    assert given.at(fires + 3 * day) == []
    assert given.state.keys == {}
    assert given.deadline is None


@pytest.mark.parametrize(
    ("time", "pattern", "hour"), [("11:05", "HH:mm", 2), ("11:05+03:00", "HH:mmXXX", 8)]
)
def test_t3_time_zone_counts_where_the_pattern_has_no_offset(
    tmp_path: Path, time: str, pattern: str, hour: int
) -> None:
    trigger = {**DAILY, "time": time, "timePattern": pattern, "timeZone": "Asia/Tokyo"}
    given = running(tmp_path, step(trigger=trigger))
    given.at(0, event(id=1))
    assert given.deadline == (hour * 60 + 5) * 60_000


def test_t3_days_that_a_job_was_down_are_no_empty_intervals(tmp_path: Path) -> None:
    trigger = {**DAILY, "maxEmptyIntervals": 1}
    config = step(trigger=trigger, dsl={"path": "aggregate.star"}, stateFull=True)
    given = running(tmp_path, config, aggregate=SUMS)
    day, fires = 86_400_000, (11 * 60 + 5) * 60_000
    given.at(0, event(id=1))
    # It starts again on the fourth day, and reads what has come since; then it has caught up.
    late = fires + 3 * day + 1_000
    assert given.at(late, event(id=2), event(id=3), behind=True) == []
    assert values(given.at(late + 60_000)) == [{"ids": [1, 2, 3]}]
    assert list(given.state.keys) == [b"k"]
    assert given.deadline == fires + 4 * day
    assert given.at(fires + 4 * day) == []
    assert given.state.keys == {}


def test_t4_time_from_event_is_what_a_script_finds_in_the_first_event(tmp_path: Path) -> None:
    trigger = {
        "type": "timeFromEvent",
        "path": "when.star",
        "timePattern": "HH:mm:ss",
        "maxEmptyIntervals": 1,
    }
    config = step(trigger=trigger, dsl={"path": "aggregate.star"})
    when = "def time(IN, Env):\n    return IN['at']\n"
    given = running(tmp_path, config, when=when, aggregate=SUMS)
    assert given.at(0, event(id=1, at="00:00:01"), event(id=2, at="00:00:09")) == []
    assert given.deadline == 1000
    assert values(given.at(1000)) == [{"ids": [1, 2]}]
    assert given.at(1000, event(id=3, at="00:00:00")) == []
    assert given.deadline == 86_400_000  # past already: tomorrow
    (failed,) = given.at(2000, event(id=4, at="9 o'clock", key="b"))
    assert reasons([failed]) == ['"9 o\'clock" is not a time of the pattern "HH:mm:ss"']


def test_t4_time_zone_counts_here_too(tmp_path: Path) -> None:
    trigger = {
        "type": "timeFromEvent",
        "path": "when.star",
        "timePattern": "HH:mm",
        "timeZone": "Asia/Tokyo",
    }
    given = running(
        tmp_path, step(trigger=trigger), when="def time(IN, Env):\n    return '11:05'\n"
    )
    given.at(0, event(id=1))
    assert given.deadline == (2 * 60 + 5) * 60_000


def test_t5_trigger_script_runs_on_every_event_and_sees_its_environment(tmp_path: Path) -> None:
    script = (
        "def trigger(IN, Env):\n"
        "    seen = Env.cache.get('seen', [])\n"
        "    seen.append([IN['id'], Env.SourceTopic, Env.SourceKey, Env.kafka.headers['h'],\n"
        "                 Env.TriggerFireMs])\n"
        "    Env.cache['seen'] = seen\n"
        "    return 'fireAndPurge' if len(seen) == 2 else 'continue'\n"
    )
    aggregate = "def aggregate(IN, Env):\n    return struct(OUT={'seen': Env.cache['seen']})\n"
    config = step(trigger=DSL, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, trigger=script, aggregate=aggregate)
    header = [("h", b"x")]
    given.at(70, event(id=1, headers=header))
    (found,) = values(given.at(80, event(id=2, headers=header)))
    assert found["seen"] == [[1, "orders", "k", "x", 70], [2, "orders", "k", "x", 80]]


@pytest.mark.parametrize(
    ("status", "said", "then"),
    [
        ("'continue'", [], [1, 2]),
        ("'fire'", ["script"], [1, 2]),
        ("'purge'", ["purged"], [2]),
        ("'fireAndPurge'", ["script"], [2]),
        ("None", ["script"], [2]),
        ("'whatever'", ["script"], [2]),
        ("42", ["script"], [2]),
        ("struct(status='fire', cache={'a': 1})", ["script"], [1, 2]),
        ("struct(status='continue', OUT=1, HEADERS=2)", [], [1, 2]),
    ],
)
def test_t6_status_of_a_trigger_says_what_is_handed_over_and_what_is_kept(
    tmp_path: Path, status: str, said: list[str], then: list[int]
) -> None:
    script = f"def trigger(IN, Env):\n    return {status} if IN['id'] == 1 else 'continue'\n"
    config = step(trigger=DSL, dsl={"path": "aggregate.star"})
    given = running(tmp_path, config, trigger=script, aggregate=SUMS)
    first = given.at(0, event(id=1))
    assert reasons(first) == said
    given.at(0, event(id=2))
    rest = given.end(10)
    assert values(rest) == [{"ids": then}]
    assert [each.revision for each in rest if isinstance(each, Made)] == [
        2 if "'fire'" in status else 1
    ]


@pytest.mark.parametrize(("flag", "fires"), [(None, 100), (True, 100), (False, 150)])
def test_t7_should_fire_at_processing_time_is_a_deadline_after_the_first_event(
    tmp_path: Path, *, flag: bool | None, fires: int
) -> None:
    said = {} if flag is None else {"shouldFireAtProcessingTime": flag}
    trigger = {**COUNT, "count": 9, **said}
    given = running(tmp_path, step(trigger=trigger))
    given.at(0, event(id=1))
    given.at(50, event(id=2, time=50))
    assert given.deadline is not None
    assert given.at(fires - 1) == []
    assert reasons(given.at(fires)) == ["gap" if flag is False else "first_timeout"] * 2


def test_t7_no_clock_closes_a_window_while_the_source_is_behind(tmp_path: Path) -> None:
    given = running(tmp_path, step(trigger={**COUNT, "count": 9}))
    given.at(0, event(id=1), behind=True)
    assert given.at(500, event(id=2, time=20), behind=True) == []
    assert given.deadline == 600
    assert len(given.at(600)) == 2
