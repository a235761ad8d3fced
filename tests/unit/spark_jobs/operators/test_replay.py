"""The stateful operators through `dovecote replay`: formats, and how time passes in a trace."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dedup.replay.replay import replay, start
from outbox.errors import BadSettings
from spark_jobs.operators.replay import OPERATORS

PAIRING = """
[operator]
type = "pairing"
key = ["user1", "user2"]
event_time = "timestamp"
within = "60s"
grace = "180s"
close_after = "240s"
emit = "on_close"
on_duplicate_side = "first"
stream_time = "per_key"
[operator.sides]
analytics = { topic = "analytics", field = "analytics" }
metrics = { topic = "metrics", field = "metrics" }
"""
SESSIONS = """
[operator]
type = "sessions"
gap = "5s"
grace = "10s"
stream_time = "per_partition"
close_after = "off"
emit = "final"
aggregate = "list"
"""


def run(tmp_path: Path, name: str, table: str, lines: Iterable[Any]) -> list[dict[str, Any]]:
    file = tmp_path / "job.toml"
    file.write_text(table)
    running = start(name, file, environ={}, operators=OPERATORS)
    return [dict(each) for each in replay(running, [json.dumps(line).encode() for line in lines])]


def event(topic: str, offset: int, value: Any, **more: Any) -> dict[str, Any]:
    head = {"topic": topic, "partition": 0, "offset": offset, "timestamp": 0}
    return head | {"value": value} | more


def side(topic: str, offset: int, time: float | None, says: str, **more: Any) -> dict[str, Any]:
    value = {"user1": "ann", "user2": "bob", "timestamp": time, topic: says}
    return event(topic, offset, value, **more)


def test_a_call_is_one_line_with_its_sides(tmp_path: Path) -> None:
    lines = [
        side("analytics", 5, 1000, "a0"),
        side("metrics", 8, None, "m0", timestamp=31_000),
        {"advance_to": 240_000},
    ]
    assert run(tmp_path, "pairing", PAIRING, lines) == [
        {
            "kind": "result",
            "key": ["ann", "bob"],
            "at": 240_000,
            "value": {
                "user1": "ann",
                "user2": "bob",
                "ts": 1000,
                "analytics": "a0",
                "metrics": "m0",
            },
            "sides": {"analytics": 5, "metrics": 8},
        }
    ]


def test_what_is_late_skipped_or_wrong_says_so(tmp_path: Path) -> None:
    lines = [
        side("analytics", 0, 0, "a0"),
        side("analytics", 1, 0, "a0"),
        side("analytics", 2, 300_000, "a1"),
        side("metrics", 3, 30_000, "m0", arrival=9),
        event("metrics", 4, {"user1": "ann"}),
        event("metrics", 5, {"user1": None, "user2": "bob", "metrics": 1}),
    ]
    place = {"topic": "metrics", "partition": 0}
    found = run(tmp_path, "pairing", PAIRING, lines)
    assert [each["kind"] for each in found] == ["skip", "result", "late", "error", "skip"]
    assert found[2] == {
        "kind": "late",
        "key": ["ann", "bob"],
        "at": 9,
        **place,
        "offset": 3,
        "timestamp": 30_000,
        "value": {"user1": "ann", "user2": "bob", "timestamp": 30_000, "metrics": "m0"},
        "reason": "too late",
    }
    error = {"kind": "error", "key": None, "at": 9, **place, "offset": 4}
    assert found[3] == error | {"reason": 'the value has no field "user2"'}
    assert found[4] == {
        "kind": "skip",
        "key": None,
        "at": 9,
        **place,
        "offset": 5,
        "reason": "no key",
    }


def test_a_whole_number_with_an_exponent_is_a_time(tmp_path: Path) -> None:
    lines = [side("analytics", 0, 1.76e12, "a"), side("metrics", 0, 1.76e12 + 1, "m")]
    lines.append(side("metrics", 1, 1.5, "m"))
    found = run(tmp_path, "pairing", PAIRING, [*lines, {"advance_to": 1.761e12}])
    assert [each["kind"] for each in found] == ["error", "result"]
    assert found[1]["value"]["ts"] == 1_760_000_000_000
    (late,) = run(tmp_path, "sessions", SESSIONS, [event("c", 0, "x", timestamp=2.5e3, key=None)])
    assert late["kind"] == "skip"


def test_sessions_are_lines_with_bounds_and_revision(tmp_path: Path) -> None:
    lines = [
        event("clicks", 0, 1, key="A", timestamp=0),
        event("clicks", 1, 2, key="A", timestamp=5000),
        event("clicks", 2, 3, key="B", timestamp=20_001, arrival=7),
        event("clicks", 3, 4, key="A", timestamp=0),
        {"end": True},
    ]
    session = {"key": "A", "at": 7, "start": 0, "end": 5000}
    late = {"kind": "late", "key": "A", "at": 7, "topic": "clicks", "partition": 0, "offset": 3}
    found = run(tmp_path, "sessions", SESSIONS, lines)
    assert found == [
        {"kind": "result", **session, "value": [1, 2], "revision": 2},
        late
        | {"timestamp": 0, "value": 4, "reason": "its session is closed", "close_time": 5_001},
    ]


def test_timers_come_before_the_record_that_moves_the_clock_in_deadline_order(
    tmp_path: Path,
) -> None:
    table = SESSIONS.replace('"off"', '"1s"').replace("per_partition", "per_key")
    lines = [
        event("clicks", 0, 1, key="b", arrival=10),
        event("clicks", 1, 2, key="a", arrival=20),
        event("clicks", 2, 3, key="c", arrival=1015),
        {"advance_to": 9000},
    ]
    found = run(tmp_path, "sessions", table, lines)
    assert [(each["key"], each["at"]) for each in found] == [("b", 1015), ("a", 9000), ("c", 9000)]


def test_a_record_that_waited_to_be_read_tells_that_the_source_was_behind(tmp_path: Path) -> None:
    first, second = side("analytics", 0, 0, "a0"), side("metrics", 0, 30_000, "m0")
    hours = 3_600_000
    lines = [
        first | {"arrival": 10 * hours},
        second | {"arrival": 10 * hours + 300_000, "timestamp": 30_000},
        {"advance_to": 10 * hours + 540_000},
    ]
    (found,) = run(tmp_path, "pairing", PAIRING, lines)
    assert found["sides"] == {"analytics": 0, "metrics": 0}
    heedless = PAIRING.replace("grace =", 'max_lag = "off"\ngrace =')
    assert len(run(tmp_path, "pairing", heedless, lines)) == 2


def test_what_was_due_before_the_source_fell_behind_is_closed(tmp_path: Path) -> None:
    lines = [
        side("analytics", 0, 0, "a0", arrival=0),
        event("analytics", 1, {"user1": 1, "user2": 2, "analytics": 3}, arrival=500_000),
    ]
    (found,) = run(tmp_path, "pairing", PAIRING, lines)
    assert (found["key"], found["at"]) == (["ann", "bob"], 300_000)


def test_a_delayed_record_is_a_line_when_its_time_has_come(tmp_path: Path) -> None:
    headers = {"ce_id": "e-1", "dovecote_round": "2", "dovecote_not_before": "5000"}
    lines = [
        event("retry", 3, {"n": 1}, key="k", headers=headers, arrival=4000),
        event("retry", 4, None, arrival=4500),
        {"advance_to": 5000},
    ]
    found = run(tmp_path, "delay", '[operator]\ntype = "delay"\n', lines)
    head = {"kind": "result", "topic": "retry", "partition": 0}
    assert found == [
        head
        | {"key": None, "at": 4500, "offset": 4, "id": "retry/0/4", "round": 0}
        | {"value": None},
        head
        | {"key": "k", "at": 5000, "offset": 3, "id": "e-1", "round": 2}
        | {"value": {"n": 1}},
    ]


@pytest.mark.parametrize(
    ("name", "table", "says"),
    [
        ("sessions", "[operator]\n", r"operator\.gap: is missing"),
        ("sessions", '[operator]\ngap = "0s"', "gap must be at least 1ms"),
        ("sessions", '[operator]\ngap = "1s"\naggregate = "mean"', "'mean' is none of count"),
        ("sessions", '[operator]\ngap = "1s"\nclose_after = "of"', "'of' is not a duration"),
        ("sessions", PAIRING, 'type is "pairing" here, but sessions was asked for'),
        ("pairing", PAIRING + 'more = { topic = "x" }', "sides must be two, not 3"),
        ("pairing", PAIRING.replace('"metrics",', '"analytics",'), "from two topics"),
        ("pairing", PAIRING.replace("user2", "ts"), "have the same name"),
        ("delay", '[operator]\ngap = "1s"', "gap: there is no such setting"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, name: str, table: str, says: str
) -> None:
    with pytest.raises(BadSettings, match=says):
        run(tmp_path, name, table, [])


def test_other_operators_are_replayed_without_what_aggregations_need() -> None:
    needed = {"orjson", "yaml", "pyhocon", "lxml", "fastavro", "pyspark"}
    code = f"import spark_jobs.operators.replay, sys; print(sorted({needed} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("key", ["k", "", None, "[1]"])
def test_a_records_own_key_means_nothing_beside_key_fields(
    tmp_path: Path, key: str | None
) -> None:
    lines = [
        event("metrics", 0, {"user1": "ann"}, key=key),
        event("metrics", 1, None, key=key),
        event("metrics", 2, {"user1": "ann", "user2": None, "metrics": 1}, key=key),
    ]
    found = run(tmp_path, "pairing", PAIRING, lines)
    assert [(each["kind"], each["key"]) for each in found] == [
        ("error", None),
        ("error", None),
        ("skip", None),
    ]
