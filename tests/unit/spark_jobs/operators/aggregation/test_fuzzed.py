"""
Nothing crashes and no record is lost, whatever is configured and whatever comes.

`DOVECOTE_FUZZ=20` tries twenty times as much.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.envelope import Record
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.config import Step
from spark_jobs.operators.aggregation.loading import SUFFIXES, checked, parse
from spark_jobs.operators.aggregation.windows import WindowState
from spark_jobs.operators.step import Failed, Late, Made, Output, Skipped
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DAILY,
    DSL,
    Running,
    event,
    running,
    step,
)

TIMES = int(os.environ.get("DOVECOTE_FUZZ", "1"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=4,
)
_PATHS = [
    ("name",), ("type",), ("key",), ("key", "type"), ("trigger",), ("trigger", "type"),
    ("trigger", "timeout"), ("trigger", "count"), ("trigger", "timePattern"), ("format",),
    ("trigger", "time"), ("format", "input"), ("format", "output"), ("dsl",), ("stateFull",),
    ("destination",), ("destination", "topic"), ("destination", "config"), ("error",), ("late",),
    ("branches",), ("targetTopics",), ("maxLag",), ("forgetAfter",), ("scriptMemory",), ("x",),
]  # fmt: skip


@settings(max_examples=800 * TIMES)
@given(st.lists(st.tuples(st.sampled_from(_PATHS), JSON), min_size=1, max_size=4))
def test_a_configuration_loads_or_says_what_is_wrong(changes: list[Any]) -> None:
    found: dict[str, Any] = step()
    for path, value in changes:
        table = found
        for name in path[:-1]:
            inner = table.get(name)
            table[name] = dict(inner) if isinstance(inner, dict) else {}
            table = table[name]
        table[path[-1]] = value
    with suppress(BadSettings):  # and no other error
        assert isinstance(checked(Step, found, "step.json"), Step)


@settings(max_examples=300 * TIMES)
@given(st.text(max_size=60), st.sampled_from(SUFFIXES))
def test_a_text_is_read_or_says_that_it_cannot_be(text: str, suffix: str) -> None:
    with suppress(BadSettings):
        assert isinstance(parse(text, Path(f"a{suffix}")), dict)


TRIGGER = """
def trigger(IN, Env):
    Env.cache["n"] = Env.cache.get("n", 0) + 1
    return IN["status"]
def time(IN, Env):
    return IN["at"]
def key(IN, Env):
    return IN["key"]
"""
AGGREGATE = """
def aggregate(IN, Env):
    what = IN[-1]["what"]
    if what == "decline" or what == "passthrough":
        return what
    return struct(OUT=[e["what"] for e in IN], HEADERS=what)
"""
EVENTS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["continue", "fire", "purge", "fireAndPurge", None, 5, "x"]),
        "what": st.sampled_from(["decline", "passthrough", None, [{}], {"BranchName": "x"}])
        | JSON,
        "at": st.sampled_from(["10:00:00", "24:00:00", None]) | st.text(max_size=4),
        "key": st.sampled_from(["a", "b", None, 5]),
    },
)
RECORDS = st.tuples(
    st.integers(0, 400),
    st.sampled_from(["a", "b", None]),
    EVENTS | JSON | st.binary(max_size=20),
    st.lists(st.tuples(st.sampled_from(["h", "schemaName"]), st.binary(max_size=4)), max_size=2),
)
TIMED = {**DAILY, "type": "timeFromEvent", "path": "trigger.star"}
del TIMED["time"]


@pytest.mark.parametrize(
    "trigger", [COUNT, DSL, DAILY, TIMED], ids=["count", "dsl", "time", "timeFromEvent"]
)
@pytest.mark.parametrize(
    "key",
    [{"type": "key"}, {"type": "headers", "keys": ["h"]}, {"type": "dsl", "path": "trigger.star"}],
    ids=["key", "headers", "dsl"],
)
def test_every_record_ends_in_output_late_skip_or_error(
    tmp_path: Path, trigger: dict[str, Any], key: dict[str, Any]
) -> None:
    config = step(trigger=trigger, key=key, dsl={"path": "aggregate.star"})
    _account(running(tmp_path, config, trigger=TRIGGER, aggregate=AGGREGATE), RECORDS)


CSV = {"type": "csv", "columnSeparator": ";", "fieldNames": ["id", "sum"]}
ORDER = {
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "sum", "type": "int"}],
}
NOTE = {"name": "Note", "fields": [{"name": "id", "type": ["null", "double"]}]}
WHOLE = [
    b'{"id": "1", "sum": 2}', b"<order><id>1</id><sum>2</sum></order>", b"<id a='1'>\xc3\xbc</id>",
    b"1;2", b'"1;";2\r\n', b"\x021\x04", b"\x02\x021", b"\x00", b'{"id": NaN}', b"[1, [2]]",
]  # fmt: skip
COPY = """
def key(IN, Env):
    return Env.SourceKey or "none"
def aggregate(IN, Env):
    return struct(OUT=[e for e in IN], HEADERS=[{"schemaName": "Note"}] + [{}] * (len(IN) - 1))
"""


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a whole value, or the remainder of one."""
    data = draw(st.sampled_from(WHOLE))
    for place in draw(st.lists(st.integers(0, len(data) - 1), max_size=2)):
        data = data[:place] + draw(st.binary(max_size=2)) + data[place + 1 :]
    return data


@pytest.mark.parametrize("written", ["json", "xml", "csv", "avro"])
@pytest.mark.parametrize("read", ["json", "xml", "csv", "avro"])
def test_every_record_of_every_format_ends_so_too(tmp_path: Path, read: str, written: str) -> None:
    sources = []
    for schema in (ORDER, NOTE):
        sources.append({"source": "file", "path": f"{schema['name']}.avsc"})
        file = tmp_path / f"{schema['name']}.avsc"
        file.write_text(json.dumps({"type": "record", **schema}))
    formats: dict[str, Any] = {"csv": CSV, "avro": {"type": "avro", "schema": sources}}
    config = step(
        key={"type": "dsl", "path": "copy.star"},
        dsl={"path": "copy.star"},
        format={"input": formats.get(read, read), "output": formats.get(written, written)},
    )
    names = st.sampled_from([b"Order", b"Note", b"Other", b"\xff"])
    headers = st.lists(st.tuples(st.just("schemaName"), names), max_size=1)
    given_ = st.tuples(st.integers(0, 400), st.sampled_from(["a", "b", None]), damaged(), headers)
    _account(running(tmp_path, config, copy=COPY), given_)


def _account(loaded: Running, records: st.SearchStrategy[Any]) -> None:
    """Let records come at any time, and find each one in the outputs."""

    @settings(max_examples=100 * TIMES)
    @given(st.lists(st.tuples(st.integers(0, 150), st.booleans(), records), max_size=12))
    def holds(steps: list[Any]) -> None:
        loaded.state, loaded._offset = loaded.operator.start(), 0
        now = 1_000
        for passed, behind, (time, name, value, headers) in steps:
            now += passed
            before = _open(loaded.state)
            new = loaded._offset
            said = loaded.at(now, _record(time, name, value, headers), behind=behind)
            gone = {new: None, **before}.keys() - _open(loaded.state).keys()
            assert gone <= _accounted(said, before)
        before = _open(loaded.state)
        assert before.keys() <= _accounted(loaded.end(now), before)
        assert not _open(loaded.state)

    holds()


def _record(time: int, key: str | None, value: Any, headers: Any) -> Record:
    if isinstance(value, bytes):
        return event(value, time=time, key=key, headers=headers)
    return event(value if value is not None else b"null", time=time, key=key, headers=headers)


def _open(state: WindowState) -> dict[int, bytes]:
    """Return the offsets of the records in windows, with the keys of the windows."""
    return {
        record.offset: key
        for key, held in state.keys.items()
        if held.window is not None
        for record in held.window.events
    }


def _accounted(outputs: list[Output], before: Mapping[int, bytes]) -> set[int]:
    """Return the offsets of the records that `outputs` are about."""
    fired = {each.window for each in outputs if isinstance(each, Made)}
    found = {offset for offset, key in before.items() if key in fired}
    for each in outputs:
        match each:
            case Made(origin=(_, _, offset)) | Skipped(offset=offset):
                found.add(offset)
            case Failed(record) | Late(record):
                found.add(record.offset)
            case _:
                pass
    return found
