"""A key that stands twice in JSON that people write is refused, wherever that is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.testclient import TestClient
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from dedup.replay.trace import BadTrace, read
from dovecote.process.settings.loading import load
from dovecote.process.settings.models import Settings
from dovecote.process.strict_json import loads
from dovecote.push.api import app as push_app
from dovecote.push.api.access import Access, hashed
from dovecote.push.api.routing import router
from dovecote.push.rules.access.scope import everything
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.config import Format
from spark_jobs.operators.aggregation.formats.formats import codec
from spark_jobs.operators.aggregation.loading import parse
from spark_jobs.operators.aggregation.settings import Text
from spark_jobs.query.settings import SourceSettings
from tests.unit.spark_jobs.operators.aggregation.steps import loaded, step

TWICE = '{"a": 1, "b": {"c": 1, "c": 2}}'
SAID = 'the key "c" stands twice in one object'


def test_what_is_json_is_as_the_standard_library_reads_it() -> None:
    text = '{"a": [1, 1.5, "x", null, true, {"a": {}}], "b": {"a": 1}}'
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize("text", [TWICE, f"[{TWICE}]", '{"c": 1, "\\u0063": 1}'])
def test_a_key_that_stands_twice_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=SAID):
        loads(text)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": Infinity}'])
def test_what_javascript_alone_calls_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        loads(text)


def test_it_is_refused_in_a_steps_file() -> None:
    with pytest.raises(BadSettings, match=f"step.json is not JSON: {SAID}"):
        parse(TWICE, Path("step.json"))


def test_it_is_refused_in_the_variables_of_a_step(tmp_path: Path) -> None:
    (tmp_path / "vars.json").write_text(TWICE)
    located = {"source": "file", "path": "vars.json"}
    with pytest.raises(BadSettings, match=rf"vars\.json is not JSON: {SAID}"):
        loaded(tmp_path, step(environmentVariables=located))


def test_it_is_refused_in_an_avro_schema() -> None:
    avro: Any = TypeAdapter(Format).validate_python({"type": "avro", "schema": [{"path": "a"}]})
    text = '{"type": "record", "name": "R", "fields": [], "c": 1, "c": 2}'
    with pytest.raises(ValueError, match=SAID):
        codec(avro, [Text(path="a.avsc", text=text)])


def test_it_is_refused_where_a_source_begins() -> None:
    offsets = '{"c": {"0": 1}, "c": {"0": 2}}'
    with pytest.raises(ValueError, match=SAID):
        SourceSettings(topics=("orders",), starting_offsets=offsets)


def test_it_is_refused_in_a_trace() -> None:
    place = b'"topic": "t", "partition": 0, "offset": 0, "timestamp": 0'
    line = b"{" + place + b', "headers": {"c": "1", "c": "2"}}'
    with pytest.raises(BadTrace, match=f"line 1 of the trace is not JSON: {SAID}"):
        next(read([line]))


class Example(Settings):
    """Settings with a table."""

    names: dict[str, str]


def test_it_is_refused_in_a_table_that_the_environment_gives() -> None:
    with pytest.raises(BadSettings, match=f"names: {SAID}"):
        load(Example, None, prefix="EXAMPLE", environ={"EXAMPLE_NAMES": '{"c": "1", "c": "2"}'})


def test_it_is_refused_by_the_api_of_push() -> None:
    app = FastAPI()
    routes = router()

    @routes.post("/subscriptions")
    def take(body: dict[str, Any]) -> dict[str, Any]:
        return body

    app.include_router(routes)
    app.add_exception_handler(HTTPException, push_app._refused)
    app.add_exception_handler(RequestValidationError, push_app._invalid)
    tokens = [(hashed("t"), everything("ops"))]
    guarded = Access(app, tokens=tokens, max_body=1_000, note=lambda _: None)
    client = TestClient(guarded)
    headers = {"content-type": "application/json", "authorization": "Bearer t"}
    assert client.post("/subscriptions", content=b'{"c": 1}', headers=headers).json() == {"c": 1}
    refused = client.post("/subscriptions", content=TWICE.encode(), headers=headers)
    assert refused.status_code == 400
    assert refused.json()["error"] == f"the body is not JSON: {SAID}"
    refused = client.post("/subscriptions", content=b"{", headers=headers)
    assert (refused.status_code, refused.json()["error"]) == (400, "the body is not JSON")
