"""Every status of a script in the operator's manual; tests are named after its sections."""

import json
from pathlib import Path
from typing import Any

import pytest

from outbox.envelope import (
    CONTENT_TYPE,
    FIRED,
    ID,
    REVISION,
    UNREAD_HEADERS,
    WINDOW_END,
    WINDOW_EVENTS,
    WINDOW_START,
)
from spark_jobs.operators.aggregation.state import decoded, encoded
from spark_jobs.operators.step import Failed, Made, Skipped
from spark_jobs.rows.packets import BucketRows
from spark_jobs.stateful.outcome import OperatorTopics, Outcome, Reporter
from tests.support.aggregated import ECHO, ORDER, said_of
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DSL,
    Running,
    event,
    loaded,
    place,
    reasons,
    running,
    step,
    values,
)


def test_f1_aggregate_sees_its_events_and_its_environment(tmp_path: Path) -> None:
    sources = "[[[s.SourceTopic, s.SourceKey, s.kafka.headers] for s in Env.sources]]"
    assert said_of(tmp_path, sources) == [["orders", "k", {}], ["orders", "k", {}]]
    counted = "[[Env.AggregationKey, Env.AggregationEventCount, Env.AggregationWindowTimeMs]]"
    assert said_of(tmp_path, counted) == ["k", 2, 0]
    assert said_of(tmp_path, "[[Env.cache, Env.loadedVariables, IN]]") == [
        {},
        {},
        [{"id": 1}, {"id": 2}],
    ]


def test_f1_window_time_is_how_long_the_window_was_there(tmp_path: Path) -> None:
    config = step(trigger={**COUNT, "count": 9}, dsl={"path": "aggregate.star"})
    script = ECHO.replace("{expression}", "Env.AggregationWindowTimeMs")
    given = running(tmp_path, config, aggregate=script)
    given.at(1000, event(id=1))
    assert values(given.at(1100)) == [100]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("OUT={'a': 1}", [("output", b"k", {"a": 1}, {})]),
        ("OUT=[1, 2]", [("output", b"k", 1, {}), ("output", b"k", 2, {})]),
        (
            "OUT=[1, 2], HEADERS=[{'TargetKey': 'x'}, {'TargetTopic': 'more'}]",
            [("output", b"x", 1, {}), ("more", b"k", 2, {})],
        ),
        (
            "OUT=5, HEADERS={'BranchName': 'big', 'kafka': {'a': 'b', 'n': 1, 'f': True}}",
            [("bigs", b"k", 5, {"a": b"b", "n": b"1", "f": b"true"})],
        ),
    ],
)
def test_f2_out_is_one_event_or_a_list_and_headers_direct_each(
    tmp_path: Path, result: str, expected: list[Any]
) -> None:
    config = step(dsl={"path": "a.star"}, branches={"big": place("bigs")}, targetTopics=["more"])
    script = f"def aggregate(IN, Env):\n    return struct({result})\n"
    said = running(tmp_path, config, a=script).at(0, event(id=1), event(id=2))
    assert [
        (each.topic, each.key, each.shown, dict(each.headers[1:]))
        for each in said
        if isinstance(each, Made)
    ] == expected


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("OUT=[1, 2], HEADERS={}", "OUT has 2 events, so HEADERS must be a list of as many"),
        ("OUT=[1, 2], HEADERS=[{}]", "HEADERS must be a list of 2"),
        ("OUT=1, HEADERS=[1]", "HEADERS must be an object"),
        ("OUT=1, HEADERS={'kafka': {'a': {}}}", "HEADERS.kafka.a is nested: headers are flat"),
        ("OUT=1, HEADERS={'kafka': 1}", "HEADERS.kafka must be an object"),
        ("OUT=1, HEADERS={'targetTopic': 'x'}", "not targetTopic"),
        ("OUT=1, HEADERS={'TargetKey': 5}", "HEADERS.TargetKey must be text"),
        ("OUT=1, HEADERS={'TargetTopic': 'else'}", 'TargetTopic "else" is no topic of this step'),
        ("OUT=1, HEADERS={'BranchName': 'x'}", 'BranchName "x" is no branch of this step'),
        ("OUT=1, HEADER={}", "a struct has OUT, HEADERS, status and cache, not HEADER"),
        ("status=5", "aggregate must return a status or a struct"),
    ],
)
def test_f2_what_cannot_be_followed_is_an_error_of_every_event(
    tmp_path: Path, result: str, error: str
) -> None:
    script = f"def aggregate(IN, Env):\n    return struct({result})\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [type(each) for each in said] == [Failed, Failed]
    assert all(error in reason for reason in reasons(said))


@pytest.mark.parametrize("result", ["'decline'", "struct(OUT=1, status='decline')"])
def test_f3_decline_filters_the_events(tmp_path: Path, result: str) -> None:
    script = f"def aggregate(IN, Env):\n    return {result}\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [type(each) for each in said] == [Skipped, Skipped]
    assert reasons(said) == ["declined", "declined"]


def test_f3_passthrough_passes_the_messages_on_unchanged_but_for_headers(tmp_path: Path) -> None:
    script = (
        "def aggregate(IN, Env):\n"
        "    return struct(status='passthrough', HEADERS={'kafka': {'seen': 'yes'}})\n"
    )
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    one = event(b'{ "id" :1}', headers=[("a", b"1"), ("seen", b"no")])
    said = given.at(0, one, event(id=2, key="k"))
    found = [each for each in said if isinstance(each, Made)]
    assert [each.value for each in found] == [b'{ "id" :1}', b'{"id": 2}']
    assert found[0].headers == [("a", b"1"), ("seen", b"yes")]
    assert found[1].headers == [("seen", b"yes")]


@pytest.mark.parametrize(("result", "count"), [("struct(OUT=1, status='x')", 1), ("'x'", 0)])
def test_f3_any_other_status_ends_the_script_and_what_was_filled_counts(
    tmp_path: Path, result: str, count: int
) -> None:
    script = f"def aggregate(IN, Env):\n    return {result}\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    assert len(values(given.at(0, event(id=1), event(id=2)))) == count


def test_f4_a_failing_script_sends_every_event_to_the_error_step_and_goes_on(
    tmp_path: Path,
) -> None:
    script = "def aggregate(IN, Env):\n    return struct(OUT=IN[0]['id'] // (IN[1]['id'] - 2))\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [each.record.raw for each in said if isinstance(each, Failed)] == [
        b'{"id": 1}',
        b'{"id": 2}',
    ]
    assert all("a.star:2:23" in reason for reason in reasons(said))
    assert values(given.at(0, event(id=4), event(id=4))) == [2]


def test_f4_what_failed_is_not_handed_over_again(tmp_path: Path) -> None:
    script = "def aggregate(IN, Env):\n    return struct(OUT=[1 // e['id'] for e in IN])\n"
    config = step(trigger=DSL, dsl={"path": "a.star"})
    always = "def trigger(IN, Env):\n    return 'fire'\n"
    given = running(tmp_path, config, a=script, trigger=always)
    assert [type(each) for each in given.at(0, event(id=0))] == [Failed]
    assert values(given.at(0, event(id=1))) == [1]


def test_f4_an_event_that_the_output_format_cannot_hold_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    avro = {"type": "avro", "schema": [{"source": "file", "path": "order.avsc"}]}
    config = step(format={"output": avro}, dsl={"path": "a.star"})
    script = "def aggregate(IN, Env):\n    return struct(OUT={'id': 'x'})\n"
    said = running(tmp_path, config, a=script).at(0, event(id=1), event(id=2))
    assert [type(each) for each in said] == [Failed, Failed]


def test_every_output_says_why_it_fired(tmp_path: Path) -> None:
    config = step(
        dsl={"path": "a.star"}, trigger={**COUNT, "count": 2}, branches={"b": place("branch")}
    )
    script = (
        "def aggregate(IN, Env):\n"
        "    return struct(OUT=[1, 2], HEADERS=[{}, {'kafka': {'ce_id': 'mine'}}])\n"
    )
    settings = loaded(tmp_path, config, a=script)
    topics = OperatorTopics(output="output", late=None, dead_letter="deadletter")
    outcome = Outcome(bucket=0)
    said = Running(settings).at(0, event(id=1, time=5), event(id=2, time=7))
    Reporter(settings, topics, "query").report(said, outcome, BucketRows(), 0)
    one, two = Outcome.decode(outcome.encode()).outgoing
    why = {
        FIRED: b"count",
        WINDOW_START: b"5",
        WINDOW_END: b"7",
        WINDOW_EVENTS: b"2",
        REVISION: b"1",
    }
    assert dict(one.headers).items() >= why.items()
    assert dict(one.headers)[CONTENT_TYPE] == b"application/json"
    assert (one.topic, one.key, one.value, one.timestamp) == ("output", b"k", b"1", 7)
    assert dict(two.headers)[ID] == b"mine"


def test_a_record_that_goes_on_as_it_is_keeps_its_headers_and_says_why(tmp_path: Path) -> None:
    settings = loaded(tmp_path, step())
    topics = OperatorTopics(output="output", late=None, dead_letter="deadletter")
    outcome = Outcome(bucket=0)
    one = event(id=1, time=5, headers=[("a", b"1"), (FIRED, b"before")])
    Reporter(settings, topics, "query").report(
        Running(settings).at(0, one, one), outcome, BucketRows(), 0
    )
    found = Outcome.decode(outcome.encode()).outgoing[0]
    assert [name for name, _ in found.headers] == [
        "a", FIRED, WINDOW_START, WINDOW_END, WINDOW_EVENTS, REVISION,
    ]  # fmt: skip
    assert (found.value, found.timestamp) == (one.value, 5)


@pytest.mark.parametrize("key", [{"type": "key"}, {"type": "dsl", "path": "key.star"}])
def test_headers_that_cannot_be_read_are_an_error_of_their_event_alone(
    tmp_path: Path, key: dict[str, str]
) -> None:
    script = "def key(IN, Env):\n    return IN['id']\n"
    settings = loaded(tmp_path, step(key=key), key=script)
    topics = OperatorTopics(output="output", late=None, dead_letter="deadletter")
    odd = event(id="a", headers=[*UNREAD_HEADERS])
    (failed,) = Running(settings).at(0, odd, event(id="a"))
    assert isinstance(failed, Failed)
    assert "not UTF-8" in failed.reason
    whole = Failed(failed.record._replace(row=odd), failed.reason)
    outcome = Outcome(bucket=0)
    Reporter(settings, topics, "query").report([whole], outcome, BucketRows(), 0)
    (letter,) = Outcome.decode(outcome.encode()).outgoing
    assert letter.topic == "deadletter"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("OUT='x' * 20000000", "its answer has 200000"),
        ("OUT=[1] * 200000", "OUT has 200000 events, more than 100000"),
    ],
)
def test_a_huge_answer_is_an_error_of_its_events(tmp_path: Path, result: str, error: str) -> None:
    script = f"def aggregate(IN, Env):\n    return struct({result})\n"
    given = running(tmp_path, step(dsl={"path": "a.star"}), a=script)
    said = given.at(0, event(id=1), event(id=2))
    assert [error in reason for reason in reasons(said)] == [True, True]


def test_a_pattern_that_was_changed_leaves_the_time_as_it_was(tmp_path: Path) -> None:
    trigger = {"type": "timeFromEvent", "path": "when.star", "timePattern": "HH:mm:ss"}
    config = step(trigger={**trigger, "maxEmptyIntervals": 2})
    when = "def time(IN, Env):\n    return '00:00:05'\n"
    before = running(tmp_path, config, when=when)
    before.at(0, event(id=1))
    config["trigger"] |= {"timePattern": "HH:mm"}
    after = running(tmp_path, config, when=when)
    after.state = decoded(after.operator, encoded(before.state))
    assert reasons(after.at(5_000)) == ["time"]
    assert after.deadline == 5_000 + 86_400_000
