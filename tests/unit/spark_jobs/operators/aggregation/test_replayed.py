"""A step over a trace reads values in its format, as it does in a job."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dedup.replay.replay import replay, start
from dedup.replay.trace import BadTrace
from spark_jobs.operators.replay import OPERATORS
from tests.unit.spark_jobs.operators.aggregation.steps import COUNT, step

SAME = "def aggregate(IN, Env):\n    return struct(OUT=IN)\n"
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
AVRO = {"type": "avro", "schema": [{"source": "file", "path": "r.avsc"}]}
CSV = {"type": "csv", "fieldNames": ["a", "b"]}


def replayed(folder: Path, format_: object, values: Sequence[object], **more: Any) -> list[Any]:
    (folder / "r.avsc").write_text(json.dumps(SCHEMA))
    (folder / "a.star").write_text(SAME)
    config = step(trigger={**COUNT, "count": 1}, format={"input": format_}, **more)
    (folder / "step.json").write_text(json.dumps(config))
    running = start("aggregation", folder / "step.json", environ={}, operators=OPERATORS)
    head = {"topic": "t", "partition": 0, "timestamp": 0, "key": "k"}
    lines = [
        json.dumps(head | {"offset": n, "value": each}).encode() for n, each in enumerate(values)
    ]
    return [each.get("value", each.get("reason")) for each in replay(running, lines)]


@pytest.mark.parametrize(
    ("format_", "value", "event"),
    [
        (CSV, "1,x", {"a": "1", "b": "x"}),
        ("xml", "<a><b/></a>", {"a": {"b": ""}}),
        (AVRO, {"base64": "Cg=="}, {"n": 5}),
        (AVRO, {"base64": ""}, "EOFError"),
        ("xml", {"base64": "PGEvPg=="}, {"a": ""}),
        ("json", {"base64": "Cg=="}, {"base64": "Cg=="}),
        ("json", "1,x", "1,x"),
        ("json", 2**70, 2**70),
    ],
)
def test_values_are_read_in_the_format_of_the_step(
    tmp_path: Path, format_: object, value: object, event: object
) -> None:
    assert replayed(tmp_path, format_, [value], dsl={"path": "a.star"}) == [event]


@pytest.mark.parametrize(
    ("format_", "value"),
    [(CSV, "1,2"), (CSV, '"5",6'), ("xml", "<a/>"), (AVRO, {"base64": "gAI="}), ("json", 2**70)],
)
def test_a_value_that_is_passed_on_is_shown_as_it_came(
    tmp_path: Path, format_: object, value: object
) -> None:
    assert replayed(tmp_path, format_, [value]) == [value]


def test_a_value_that_is_no_base64_ends_the_replay(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="the value of t/0/0 in the trace is not base64"):
        replayed(tmp_path, AVRO, [{"base64": "?"}])
