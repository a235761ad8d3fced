"""The contents of a flow's file, and the errors for one that leads nowhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from outbox.errors import BadSettings
from spark_jobs.checkpoint.pins import refusal
from spark_jobs.jobs.flow import Job, load_flow
from spark_jobs.query.settings import DedupSettings
from spark_jobs.stateful.settings import AggregationJob, StatefulSettings
from tests.unit.spark_jobs.operators.aggregation.steps import SUMS, place, step

PASSWORD = {"sasl.password": {"env": "SECRET"}}


def _flow(*steps: object, **fields: Any) -> dict[str, Any]:
    found = {
        "source": {
            "name": "in",
            "type": "source",
            "topic": "orders",
            "config": {"type": "kafka", "name": "input"},
        },
        "connections": {
            "input": {"bootstrap.servers": "one:9092", **PASSWORD},
            "output": {"bootstrap.servers": "two:9092", **PASSWORD},
        },
        "steps": list(steps or [step()]),
        "spark": {"query": "q", "checkpoint": "c"},
    }
    return {**found, **fields}


def _load(folder: Path, flow: object) -> dict[str, Job]:
    file = folder / "flow.json"
    file.write_text(json.dumps(flow))
    return load_flow(file, {"SECRET": "hush"})[1]


def test_a_step_becomes_a_query_of_its_own(tmp_path: Path) -> None:
    (job,) = _load(tmp_path, _flow()).values()
    assert isinstance(job, AggregationJob)
    assert (job.spark.query, job.spark.checkpoint) == ("q.aggregation", "c/aggregation")
    assert job.source.topics == ("orders",)
    assert job.topics_written() == ("output", "deadletter")
    assert job.kafka == {"bootstrap.servers": "two:9092", "sasl.password": "hush"}
    assert job.reads().kafka["bootstrap.servers"] == "one:9092"
    assert "hush" not in repr(job)


def test_every_step_goes_on_without_deleted_events_if_the_flow_says_so(tmp_path: Path) -> None:
    (job,) = _load(tmp_path, _flow()).values()
    assert job.source.expired == "refuse"

    (job,) = _load(tmp_path, _flow(expired="skip")).values()
    assert job.source.expired == "skip"


GAP = {"type": "count", "count": 2, "timeout": 100}
OTHER_GAP = {"type": "dsl", "path": "t.star", "timeout": 9}
DAILY = {"type": "time", "time": "11:05", "timePattern": "HH:mm"}
FROM_EVENT = {"type": "timeFromEvent", "path": "t.star", "timePattern": "HH:mm"}


def _csv(*names: str) -> dict[str, Any]:
    return {"type": "csv", "fieldNames": names}


def _avro(*names: str) -> dict[str, Any]:
    files = [{"source": "file", "path": f"{name}.avsc"} for name in names]
    return {"type": "avro", "schema": files}


def _record(name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": "int"}]}


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [
        ({}, {"key": {"type": "hash"}}, "step.key"),
        ({"key": {"type": "headers", "keys": ["a"]}}, {"key": {"type": "key"}}, "step.key"),
        ({"trigger": GAP}, {"trigger": DAILY}, "step.trigger"),
        ({"trigger": OTHER_GAP}, {"trigger": FROM_EVENT}, "step.trigger"),
        ({"trigger": DAILY}, {"trigger": FROM_EVENT}, "step.trigger"),
        ({"trigger": GAP}, {"trigger": OTHER_GAP, "maxLag": 5, "stateFull": True}, None),
        ({"trigger": DAILY}, {"trigger": {**DAILY, "time": "12:00"}}, None),
        ({"format": {"input": "xml"}}, {"format": {"input": "json"}}, "format.input"),
        ({"format": {"input": _csv("a", "b")}}, {"format": {"input": _csv("b", "a")}}, "format"),
        ({"format": {"input": "xml"}}, {"format": {"input": "xml", "output": "xml"}}, None),
        (
            {"format": {"input": _avro("a")}},
            {"format": {"input": _avro("b", "a")}},
            "no schemaName",
        ),
        (
            {"format": {"input": _avro("a", "b")}},
            {"format": {"input": _avro("a")}},
            '"b" schemaName',
        ),
        ({"format": {"input": _avro("a")}}, {"format": {"input": _avro("a", "b")}}, None),
    ],
)
def test_a_checkpoint_goes_on_with_the_windows_and_keys_it_was_made_with(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], refused: str | None
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.avsc").write_text(json.dumps(_record(name)))
    (tmp_path / "t.star").write_text(
        "def trigger(IN, Env):\n    pass\ndef time(IN, Env):\n    pass\n"
    )
    before, after = (
        next(iter(_load(tmp_path, _flow(step(**each))).values())) for each in (one, other)
    )
    assert isinstance(before, AggregationJob)
    assert isinstance(after, AggregationJob)
    told = refusal("c", before.pins(), after.pins())
    assert told is None if refused is None else refused in (told or "")


def test_steps_in_files_have_their_scripts_in_the_folders_of_both(tmp_path: Path) -> None:
    (tmp_path / "steps" / "scripts").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    for name, folder in (("own.star", "steps/scripts"), ("shared.star", "scripts")):
        (tmp_path / folder / name).write_text(SUMS)
    for name in ("own.star", "shared.star"):
        (tmp_path / "steps" / "sums.json").write_text(json.dumps(step(dsl={"path": name})))
        (job,) = _load(tmp_path, _flow("steps/sums.json")).values()
        assert isinstance(job, AggregationJob)
        assert job.operator.aggregate is not None


def test_a_step_reads_every_destination_of_its_name(tmp_path: Path) -> None:
    named = {**place("sums"), "name": "second"}
    wrong = {**place("wrong"), "name": "second"}
    first = step(
        branches={"b": {**place("more"), "name": "second"}}, destination=named, error=wrong
    )
    flow = _flow(first, step(name="second"))
    flow["source"]["config"]["name"] = "output"
    jobs = _load(tmp_path, flow)
    assert jobs["second"].source.topics == ("sums", "more", "wrong")


def test_a_flow_reads_patterns(tmp_path: Path) -> None:
    between = {**place("between"), "name": "second"}
    flow = _flow(step(destination=between), step(name="second"))
    flow["source"]["config"]["name"] = "output"
    flow["source"]["topic"] = ["orders.*", "!orders.old"]
    jobs = _load(tmp_path, flow)
    assert jobs["aggregation"].source.topics == ("orders.*", "!orders.old")
    assert jobs["second"].source.topics == ("between",)


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("orders.[a", r"source.topic.*matches no topic"),
        ("!orders", r"source.topic.*takes nothing out"),
        (["orders", "!a"], r"source.topic.*takes nothing out"),
        ("sum?", r"steps.1: topic 'sums' is written, and read by the pattern 'sum\?'"),
        ("m*", r"steps.1: topic 'more' is written, and read by the pattern 'm\*'"),
    ],
)
def test_a_pattern_that_would_go_round_the_flow_is_refused(
    tmp_path: Path, topic: object, says: str
) -> None:
    first = step(destination={**place("between"), "name": "second"})
    flow = _flow(first, step(name="second", destination=place("sums"), targetTopics=["more"]))
    flow["source"]["config"]["name"] = "output"
    flow["source"]["topic"] = topic
    with pytest.raises(BadSettings, match=says):
        _load(tmp_path, flow)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"destination": place("orders")}, "topic 'orders' is written by third, and read"),
        ({"error": place("orders")}, "before it by aggregation"),
        ({"late": place("between")}, "topic 'between' .* before it by second"),
        ({"targetTopics": ["orders"]}, "would never end"),
        ({"destination": {**place("orders"), "name": "aggregation"}}, None),
        ({"destination": place("end")}, None),
    ],
)
def test_what_goes_round_the_flow_by_its_names_is_refused_unless_the_step_is_named(
    tmp_path: Path, fields: dict[str, Any], says: str | None
) -> None:
    first = step(destination={**place("between"), "name": "second"}, error=place("e1"))
    second = step(
        name="second", destination={**place("after"), "name": "third"}, error=place("e2")
    )
    third = step(**{"name": "third", "destination": place("end"), "error": place("e3"), **fields})
    flow = _flow(first, second, third)
    flow["source"]["config"]["name"] = "output"
    if says is None:
        assert len(_load(tmp_path, flow)) == 3
    else:
        with pytest.raises(BadSettings, match=says):
            _load(tmp_path, flow)


def test_other_operators_are_steps_too(tmp_path: Path) -> None:
    common = {"destination": place("out"), "error": place("dead")}
    sessions = {"name": "s", "type": "sessions", "operator": {"gap": "5s"}, **common}
    flow = _flow({**sessions, "late": place("late")})
    flow["source"]["config"]["name"] = "output"
    (job,) = _load(tmp_path, flow).values()
    assert isinstance(job, StatefulSettings)
    assert job.operator.type == "sessions"
    assert job.topics_written() == ("out", "late", "dead")
    dedup = {"name": "d", "type": "dedup", "operator": {"type": "first_match"}}
    tables = {"retry": {"max_attempts": 7}}
    flow["steps"] = [{**dedup, **common, "retry": place("again"), "tables": tables}]
    (job,) = _load(tmp_path, flow).values()
    assert isinstance(job, DedupSettings)
    assert job.output.retry_topic == "again"
    assert job.retry.max_attempts == 7
    flow["steps"] = [{**sessions, "operator": {"gpa": "5s"}}]
    with pytest.raises(BadSettings, match=r"operator.gap: is missing\n  operator.gpa: there is"):
        _load(tmp_path, flow)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"steps": []}, "steps: must not be empty"),
        ({"steps": [step(), step()]}, "steps have the same name"),
        (
            {"steps": [step(), step(name="b")]},
            r"steps\.1: no destination and no source leads to b",
        ),
        ({"steps": ["none.conf"]}, "cannot read .*none.conf: No such file"),
        ({"steps": [{"type": "x"}]}, 'steps.0: type "x" is none of '),
        ({"steps": [step(destination=place("orders"))]}, "read and written"),
        ({"connections": {"input": {"bootstrap.servers": "x:1"}}}, "there is no output"),
        ({"spark": {"query": "q"}}, "spark.checkpoint: is missing"),
        ({"sorce": {}}, "sorce: there is no such field"),
        (
            {"connections": {"input": {}, "output": {"sasl.password": "hush"}}},
            "sasl.password is a secret",
        ),
    ],
)
def test_a_flow_that_leads_nowhere_is_refused(
    tmp_path: Path, fields: dict[str, Any], error: str
) -> None:
    with pytest.raises(BadSettings, match=error):
        _load(tmp_path, _flow(**fields))


def test_what_is_wrong_with_a_step_in_a_file_of_its_own_is_said_once_and_with_that_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "sums.json").write_text(json.dumps(step(trigger={**GAP, "count": 0})))
    with pytest.raises(BadSettings) as raised:
        _load(tmp_path, _flow("sums.json"))
    assert str(raised.value).partition("(")[2].splitlines() == [
        f"{tmp_path}/flow.json; steps.0 is {tmp_path}/sums.json):",
        "  steps.0.trigger.count: must be greater than or equal to 1",
    ]
    (tmp_path / "sums.json").write_text(json.dumps(step(dsl={"path": "none.star"})))
    with pytest.raises(BadSettings, match=r"flow.json, step aggregation: dsl.path: there is no"):
        _load(tmp_path, _flow("sums.json"))


def test_a_step_alone_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="is one step: name it in the `steps` of a file"):
        _load(tmp_path, step())
