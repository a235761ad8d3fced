"""The manual's file in three languages, and the errors for a wrong one."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.config import Step, json_schema
from spark_jobs.operators.aggregation.loading import checked, parse, read
from tests.unit.spark_jobs.operators.aggregation.steps import step

MANUAL = """
{
  name: "aggregation", type: "aggregation"
  environmentVariables { source: "file", path: "vars.json" }
  format: {
    input: "json"
    output: { type: "avro", schema: [ { source: "file", path: "schemas/order.avsc" }, { source: "classpath", path: "schemas/default.avsc", default: true } ] }
  }
  key { type: "dsl", path: "key.star" }               # or { type: "key" }
  trigger: { type: "dsl", path: "trigger.star", timeout: 100 }
             # or { type: "count", count: 2, timeout: 100, shouldFireAtProcessingTime: false }
  dsl: { path: "aggregate.star" }
  stateFull: false
  destination: { name: "output", type: "destination", topic: "output", config: { type: "kafka", name: "output" } }
  error: { name: "deadletter", type: "destination", topic: "deadletter", config: { type: "kafka", name: "output" } }
}
"""  # noqa: E501  # as the manual has it
TRIGGERS = (
    '{ type: "count", count: 2, timeout: 100, shouldFireAtProcessingTime: false }',
    '{ type: "time", time: "11:05:00+03:00", timePattern: "HH:mm:ssXXX", maxEmptyIntervals: 3 }',
    '{ type: "timeFromEvent", path: "w.star", timePattern: "HH:mm:ss", maxEmptyIntervals: 3 }',
)
KEYS = (
    '{ type: "key" }',
    '{ type: "headers", keys: ["tenant", "order"] }',
    '{ type: "hash", algorithm: "SHA-256" }',
)


def _checked(text: str) -> Step:
    file = Path("step.conf")
    return checked(Step, parse(text, file), file)


def test_the_manuals_file_loads_as_it_is() -> None:
    found = _checked(MANUAL)
    assert found.trigger.type == "dsl"
    assert found.trigger.timeout == 100
    assert found.format.output.type == "avro"


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("key", KEYS)
def test_so_do_its_other_keys_and_triggers(trigger: str, key: str) -> None:
    _checked(
        MANUAL.replace('{ type: "dsl", path: "trigger.star", timeout: 100 }', trigger).replace(
            '{ type: "dsl", path: "key.star" }', key
        )
    )


def test_yaml_json_and_hocon_say_the_same(tmp_path: Path) -> None:
    found = parse(MANUAL, Path("step.conf"))
    (tmp_path / "step.json").write_text(json.dumps(found))
    (tmp_path / "step.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(found))))
    assert read(tmp_path / "step.json") == read(tmp_path / "step.yaml") == found


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"trigger": {"type": "dsl", "path": "a", "timeuot": 5}},
            "trigger.timeuot: there is no such field",
        ),
        ({"trigger": {"type": "dsl", "path": "a", "timeout": "5"}}, "trigger.timeout: must be a "),
        (
            {"trigger": {"type": "count", "count": 0, "timeout": 5}},
            "trigger.count: must be greater than or equal to 1",
        ),
        ({"trigger": 5}, "trigger: must be an object"),
        ({"trigger": {}}, "trigger: type is missing"),
        ({"stateFull": "no"}, "stateFull: must be true or false"),
        ({"statefull": True}, "statefull: there is no such field"),
        (
            {"key": {"type": "hash", "algorithm": "CRC"}},
            "key.algorithm: must be 'SHA-256'",
        ),
        ({"key": {"type": "headers", "keys": []}}, "key.keys: must not be empty"),
        ({"format": {"input": "yaml"}}, "format.input: type \"yaml\" is none of 'json'"),
        ({"format": {"input": {"type": "csv"}}}, "format.input.fieldNames: is missing"),
        (
            {"format": {"output": {"type": "avro", "schema": [{"path": 5}]}}},
            "format.output.schema.0.path: must be text",
        ),
        (
            {"trigger": {"type": "time", "time": "11:05", "timePattern": "YYYY"}},
            'trigger.timePattern: time pattern "YYYY": "YYYY" is not of a time of day',
        ),
        (
            {"trigger": {"type": "time", "time": "11", "timePattern": "HH:mm"}},
            'trigger.time: "11" is not a time of the pattern "HH:mm"',
        ),
        (
            {
                "trigger": {
                    "type": "time",
                    "time": "11:05",
                    "timePattern": "HH:mm",
                    "timeZone": "Mars",
                }
            },
            'trigger.timeZone: there is no time zone "Mars"',
        ),
        ({"error": None}, "error: must be an object"),
        ({"maxLag": 0}, "maxLag: must be greater"),
        ({"targetTopics": ["a b"]}, "targetTopics.0: must be the name of a topic: letters, "),
    ],
)
def test_an_error_names_the_path_and_says_what_is_expected(
    changes: dict[str, Any], error: str
) -> None:
    with pytest.raises(BadSettings) as raised:
        checked(Step, step(**changes), "step.conf")
    assert f"\n  {error}" in str(raised.value)
    assert str(raised.value).startswith("bad configuration (step.conf):")


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("a.conf", "{ a: [1, ", "a.conf is not HOCON: Expected"),
        ("a.conf", "{ a: ${none} }", "a.conf is not HOCON: Cannot resolve"),
        ("a.yaml", "a: [", "a.yaml is not YAML: "),
        ("a.json", "{", "a.json is not JSON: "),
        ("a.json", "[]", "a.json must hold an object"),
        ("a.toml", "", "a.toml: a configuration ends in one of .conf"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(name: str, text: str, error: str) -> None:
    with pytest.raises(BadSettings) as raised:
        parse(text, Path(name))
    assert error in str(raised.value)


def test_what_hocon_includes_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "common.conf").write_text("{ a: 1, b: { c: 2 } }")
    (tmp_path / "step.conf").write_text('{ include "common.conf", b: { c: 3 } }')
    assert read(tmp_path / "step.conf") == {"a": 1, "b": {"c": 3}}
    (tmp_path / "step.conf").write_text('{ include required("none.conf") }')
    with pytest.raises(BadSettings, match=r"step\.conf is not HOCON: .*none\.conf"):
        read(tmp_path / "step.conf")


def test_the_json_schema_takes_what_the_models_take() -> None:
    schema = json_schema()
    jsonschema.validate(json.loads(json.dumps(parse(MANUAL, Path("a.conf")))), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(step(statefull=True), schema)
