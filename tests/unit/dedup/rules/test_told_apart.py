"""The first header tells most records apart; an event is the same by the short way to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.identity import are_told_apart, identity
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


def having(*headers: Pair) -> Record:
    return Record("t", 0, 1, 2, b"k", b"v", headers)


@given(rows=st.lists(HEADERS, max_size=4))
def test_records_that_are_told_apart_are_no_duplicates(rows: list[list[Pair]]) -> None:
    records = [Record("t", 0, n, 0, b"k", b"v", headers) for n, headers in enumerate(rows)]
    if are_told_apart(records):
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


def test_records_whose_first_headers_are_other_ids_are_told_apart() -> None:
    assert are_told_apart([having((ID, b"1")), having((ID, b"2"), (ID, b"1"))])
    assert are_told_apart([])


@pytest.mark.parametrize(
    "other", [having(), having((ID, b"")), having((ID, None)), having((TIME, b"2"), (ID, b"2"))]
)
def test_a_record_that_does_not_begin_with_its_id_needs_a_closer_look(other: Record) -> None:
    assert not are_told_apart([having((ID, b"1")), other])


def test_records_with_one_id_are_not_told_apart() -> None:
    assert not are_told_apart([having((ID, b"1"), (SOURCE, b"a")), having((ID, b"1"))])
