"""Numbers come out of a step as they went in, or their event is an error with the path."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.operators.aggregation.formats.avro import AvroCodec
from spark_jobs.operators.step import Made
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    Running,
    event,
    reasons,
    running,
    step,
    values,
)

SAME = "def aggregate(IN, Env):\n    return struct(OUT=IN)\n"
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sum", "type": "long"}, {"name": "no", "type": "int", "default": 1}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "lines", "type": {"type": "array", "items": LINE}, "default": []},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string", "shop.Order"], "default": None},
        {"name": "rate", "type": ["null", "float", "double", "long"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}, "default": {}},
        {"name": "share", "type": "float", "default": 0.5},
    ],
}
LEAST: dict[str, Any] = {"lines": [], "kind": "A", "note": None, "rate": None, "tags": {}}
LEAST |= {"share": 0.5}


def codec(schema: object) -> AvroCodec:
    return AvroCodec([("order.avsc", json.dumps(schema), False)])


def one(folder: Path, script: str = SAME, **config: Any) -> Running:
    """Return a step that fires with each event."""
    made = step(trigger={**COUNT, "count": 1}, dsl={"path": "a.star"}, stateFull=True, **config)
    return running(folder, made, a=script)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"kind": "A"}, {}),
        ({"kind": "A", "lines": [{"sum": 5.0}]}, {"lines": [{"sum": 5, "no": 1}]}),
        ({"kind": "B", "lines": [{"sum": -(2**63), "no": 2**31 - 1}]}, None),
        ({"kind": "A", "note": {"kind": "B"}}, {"note": LEAST | {"kind": "B"}}),
        ({"kind": "A", "rate": 2**53 + 1, "tags": {"x": True}}, None),
        ({"kind": "A", "rate": 0.1, "share": 0.25}, None),
    ],
)
def test_avro_holds_what_was_given_and_its_defaults(given: Any, found: Any) -> None:
    order = codec(ORDER)
    assert order.decode(order.encode(given, None), None) == LEAST | (found or {}) | (
        given if found is None else {"kind": given["kind"]}
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lines": [{"sum": 1}, {"sum": 5.7}]}, "lines[1].sum: 5.7 does not fit into long"),
        ({"lines": [{"sum": 2**63}]}, "lines[0].sum: 9223372036854775808 does not fit into long"),
        ({"lines": [{"sum": 1, "no": 1760000000000}]}, "lines[0].no: 1760000000000 does not fit"),
        ({"lines": [{"sum": True}]}, "lines[0].sum: true does not fit into long"),
        ({"lines": [{}]}, "lines[0].sum is missing"),
        ({"lines": None}, "lines: null does not fit into array"),
        ({"kind": "C"}, 'kind: "C" does not fit into enum shop.Kind'),
        ({"note": {"kind": "A", "lines": [{"sum": 0.5}]}}, "note.lines[0].sum: 0.5 does not"),
        ({"rate": 2**64 + 1}, "rate: 18446744073709551617 does not fit into one of null, float"),
        ({"tags": {"x": 1}}, "tags.x: 1 does not fit into boolean"),
        ({"share": 1e39}, "share: 1e+39 does not fit into float"),
        ({"share": 2**24 + 1}, "share: 16777217 does not fit into float"),
        ({"more": 1}, "more: record shop.Order has no such field"),
    ],
)
def test_a_value_that_avro_cannot_hold_is_refused_with_its_path(given: Any, why: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        codec(ORDER).encode({"kind": "A"} | given, None)
    assert str(refused.value).startswith(why)


_LINES = st.lists(
    st.fixed_dictionaries(
        {"sum": st.integers(-(2**63), 2**63 - 1), "no": st.integers(-(2**31), 2**31 - 1)}
    ),
    max_size=3,
)
_WHOLE = st.fixed_dictionaries(
    {
        "lines": _LINES,
        "kind": st.sampled_from("AB"),
        "note": st.none() | st.text(st.characters(codec="utf-8")),
        "rate": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "tags": st.dictionaries(st.text(st.characters(codec="utf-8")), st.booleans(), max_size=3),
        "share": st.floats(width=32, allow_nan=False, allow_infinity=False),
    }
)


@given(_WHOLE)
def test_the_library_reads_what_is_written(value: Any) -> None:
    data = codec(ORDER).encode(value, None)
    assert (
        fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(ORDER), None) == value
    )


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("struct(OUT={'a': [1, {'b': float('nan')}]})", "OUT.a[1].b is nan"),
        ("struct(OUT=[None, 1e308 * 10])", "OUT[1] is +inf"),
        ("struct(OUT=struct(x=(1, -1e308 * 10)))", "OUT.x[1] is -inf"),
        ("struct(OUT=1, cache={'n': float('inf')})", "cache.n is +inf"),
    ],
)
def test_a_number_that_json_cannot_hold_is_an_error_with_its_path(
    tmp_path: Path, out: str, why: str
) -> None:
    script = f"def aggregate(IN, Env):\n    return {out}\n"
    (reason,) = reasons(one(tmp_path, script).at(0, event(n=1)))
    assert reason == f"aggregate: {why}, a number that JSON cannot hold"


def test_null_and_texts_about_infinity_are_no_such_numbers(tmp_path: Path) -> None:
    value = {"a": None, "b": "nan", "c": ["inf"]}
    assert values(one(tmp_path).at(0, event(value))) == [value]


def test_numbers_in_events_that_json_cannot_hold_are_errors(tmp_path: Path) -> None:
    said = one(tmp_path).at(0, event(b'{"a": 1e999}'), event(b'{"a": NaN}'), event(a=1))
    assert len(reasons(said)) == 3
    assert values(said) == [{"a": 1}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "d", "type": "double"}]}
    (tmp_path / "r.avsc").write_text(json.dumps(schema))
    avro = {"type": "avro", "schema": [{"source": "file", "path": "r.avsc"}]}
    infinite = struct.pack("<d", float("inf"))
    said = one(tmp_path, format={"input": avro}).at(0, event(infinite))
    assert reasons(said) == ["d is inf, a number that JSON cannot hold"]
    unread = running(tmp_path, step(trigger={**COUNT, "count": 1}, format={"input": avro}))
    (passed,) = unread.at(0, event(infinite))
    assert isinstance(passed, Made)
    assert passed.value == infinite


def test_integers_of_more_than_64_bits_keep_their_digits(tmp_path: Path) -> None:
    script = (
        "def aggregate(IN, Env):\n"
        "    Env.cache['sum'] = Env.cache.get('sum', 0) + IN[0]['n']\n"
        "    return struct(OUT={'n': IN[0]['n'], 'sum': Env.cache['sum']})\n"
    )
    step_ = one(tmp_path, script)
    assert values(step_.at(0, event(n=2**70))) == [{"n": 2**70, "sum": 2**70}]
    assert values(step_.at(0, event(n=-1))) == [{"n": -1, "sum": 2**70 - 1}]
    (made,) = step_.at(0, event(n=-(2**64)))
    assert isinstance(made, Made)
    assert json.loads(made.value or b"") == {"n": -(2**64), "sum": 2**70 - 1 - 2**64}
