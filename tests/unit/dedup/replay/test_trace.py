import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.replay.trace import Advance, BadTrace, End, Traced, read, to_json
from dedup.rules.policies.decode import as_json

RECORD = {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1_000}


def line(**changes: object) -> bytes:
    return json.dumps(RECORD | changes).encode()


def test_a_line_is_a_record_an_advance_of_the_clock_or_the_end() -> None:
    found = list(read([line(key="k"), b'{"advance_to": 5}\n', b"\n", b'{"end": true}']))
    assert [type(item) for item in found] == [Traced, Advance, End]
    assert found[1] == Advance(advance_to=5)


def test_a_record_has_the_fields_that_kafka_gives_it() -> None:
    headers = [["tag", "red"], ["tag", None], ["dovecote_round", 2]]
    (item,) = read([line(key="straße", value={"a": 1}, headers=headers, arrival=9)])
    assert isinstance(item, Traced)
    record = item.record()
    assert record[:4] == ("orders", 0, 7, 1_000)
    assert (record.key, record.value) == ("straße".encode(), b'{"a":1}')
    assert record.headers == [("tag", b"red"), ("tag", None), ("dovecote_round", b"2")]
    assert item.arrival == 9


def test_key_value_headers_and_arrival_may_be_left_out() -> None:
    (item,) = read([line()])
    assert isinstance(item, Traced)
    assert (item.record().key, item.record().value, item.record().headers) == (None, None, [])
    assert item.arrival is None


def test_headers_may_be_an_object() -> None:
    (item,) = read([line(headers={"tag": "red"})])
    assert isinstance(item, Traced)
    assert item.record().headers == [("tag", b"red")]


text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | text
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@given(values)
def test_a_value_reaches_the_handler_as_the_trace_has_it(value: object) -> None:
    (item,) = read([line(value=value)])
    assert isinstance(item, Traced)
    assert as_json(item.record()).value == value
    assert json.loads(to_json(value)) == value


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"{", "line 2 of the trace is not JSON: EOF"),
        (b"\xff", "line 2 of the trace is not JSON"),
        (b"[1]", "line 2 of the trace is not a JSON object"),
        (line(value=float("nan")), "line 2 of the trace is not JSON"),
        (line(arival=3), "line 2 of the trace: arival: there is no such field"),
        (line(offset="7"), "line 2 of the trace: offset: must be a whole number"),
        (line(partition=True), "line 2 of the trace: partition: must be a whole number"),
        (line(key=7), "line 2 of the trace: key: must be text"),
        (line(headers=["tag"]), "line 2 of the trace: headers"),
        (b'{"topic": "orders"}', "line 2 of the trace: partition: is missing"),
        (b'{"advance_to": "soon"}', "line 2 of the trace: advance_to: must be a whole number"),
        (b'{"advance_to": 5, "key": "k"}', "line 2 of the trace: key: there is no such field"),
        (b'{"end": false}', "line 2 of the trace: end: must be True"),
    ],
)
def test_a_bad_line_says_its_number_and_what_is_wrong(bad: bytes, says: str) -> None:
    items = read([line(), bad, line()])
    next(items)
    with pytest.raises(BadTrace, match=says):
        next(items)


def test_nothing_comes_after_the_end_but_blank_lines() -> None:
    assert len(list(read([b'{"end": true}', b"  \n"]))) == 1
    with pytest.raises(BadTrace, match="line 3 of the trace comes after"):
        list(read([b'{"end": true}', b"", line()]))
