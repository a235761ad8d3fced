"""One look at a record's headers says what counts, and records share what is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.history import HeaderReader, believed
from dedup.rules.identity import are_distinct, identity
from dedup.rules.record import Record
from outbox.envelope import (
    ATTEMPT,
    CONTENT_TYPE,
    ID,
    ORIGIN,
    ROUND,
    SOURCE,
    SPECVERSION,
    TIME,
    TRACEPARENT,
    TYPE,
    Pair,
    any_event,
    usual_event,
)
from outbox.errors import InvalidEvent

NAMES = [ID, TYPE, SOURCE, TIME, SPECVERSION, CONTENT_TYPE, TRACEPARENT, ROUND, ATTEMPT, ORIGIN]
TIMES = [b"2026-11-27T11:32:46.428996Z", b"2026-11-27", b""]
VALUES = st.one_of(st.none(), st.sampled_from([b"1", b"1.0", b"\xff", *TIMES]))
HEADERS = st.lists(st.tuples(st.sampled_from([*NAMES, "tenant"]), VALUES), max_size=8)


@given(rows=st.lists(HEADERS, max_size=4), retry=st.booleans())
def test_headers_are_the_same_after_a_look(rows: list[list[Pair]], *, retry: bool) -> None:
    reader = HeaderReader()
    for headers in [*rows, *rows]:
        found = reader.read(headers, retry=retry)
        assert list(found.headers) == list(believed(headers, retry=retry))
        size = sum(len(value or b"") for _, value in headers)
        assert found.size == 150 * len(headers) + size


@given(rows=st.lists(HEADERS, max_size=4))
def test_records_with_distinct_ids_are_no_duplicates(rows: list[list[Pair]]) -> None:
    reader = HeaderReader()
    seen = [reader.read(headers, retry=True) for headers in rows]
    if are_distinct([each.id for each in seen]):
        records = [Record("t", 0, n, 0, b"k", b"v", each.headers) for n, each in enumerate(seen)]
        assert len({identity(record) for record in records}) == len(records)


@given(headers=HEADERS)
def test_the_short_way_to_an_event_finds_what_the_long_one_does(headers: list[Pair]) -> None:
    record = Record("t", 0, 1, 2, b"k", b"v", headers)
    try:
        usual = usual_event(record, key="k", value=b"v")
    except InvalidEvent:
        with pytest.raises(InvalidEvent):
            any_event(record, key="k", value=b"v")
        return
    if usual is not None:
        assert usual == any_event(record, key="k", value=b"v")


def test_records_of_one_kind_share_what_they_have_in_common() -> None:
    reader = HeaderReader()
    first, second = (
        reader.read([(ID, b"%d" % n), (TYPE, b"Placed".upper()), ("tenant", b"a")], retry=False)
        for n in range(2)
    )
    assert first.headers[1] is second.headers[1]
    assert (first.id, second.id) == (b"0", b"1")


def test_an_id_that_stands_twice_is_none_that_can_be_told() -> None:
    found = HeaderReader().read([(ID, b"1"), (ID, b"2")], retry=False)
    assert found.id is None
    assert not are_distinct([b"1", None])
    assert not are_distinct([b"1", b"1"])
    assert are_distinct([])
