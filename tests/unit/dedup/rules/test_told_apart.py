"""The first header tells most records apart; an event is the same by the short way to it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.identity import are_told_apart, identity
from dedup.rules.record import Record
from outbox import envelope
from outbox.envelope import (
    ATTEMPT,
    CONTENT_TYPE,
    ID,
    ORIGIN,
    ROUND,
    SOURCE,
    SPECVERSION,
    SUBJECT,
    TIME,
    TRACEPARENT,
    TYPE,
    Pair,
    any_event,
    encode,
    usual_event,
)
from outbox.errors import InvalidEvent
from outbox.event import Event

NAMES = [ID, TYPE, SOURCE, TIME, SPECVERSION, CONTENT_TYPE, TRACEPARENT, ROUND, ATTEMPT, ORIGIN]
TIMES = [b"2026-11-27T11:32:46.428996Z", b"2026-11-27", b""]
VALUES = st.one_of(st.none(), st.sampled_from([b"1", b"1.0", b"\xff", *TIMES]))
HEADERS = st.lists(st.tuples(st.sampled_from([*NAMES, "tenant"]), VALUES), max_size=8)

IN_ORDER = st.tuples(
    *(
        st.lists(st.tuples(st.just(name), st.sampled_from(values)), min_size=least, max_size=most)
        for name, values, least, most in (
            (ID, [b"1", b"2", b"\xff", b""], 0, 2),
            (TIME, [*TIMES, None], 1, 1),
            (SPECVERSION, [b"1.0", b"2"], 0, 1),
            (TYPE, [b"Placed", b"\xff"], 1, 1),
            (SOURCE, [b"/shop", b""], 1, 2),
            (CONTENT_TYPE, [b"text/plain", None], 0, 1),
            (SUBJECT, [b"5", None, b"\xff"], 0, 2),
            (TRACEPARENT, [b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01", b"no", None], 0, 1),
            ("tenant", [b"a"], 0, 1),
        )
    )
).map(lambda parts: [pair for part in parts for pair in part])


def having(*headers: Pair) -> Record:
    return Record("t", 0, 1, 2, b"k", b"v", headers)


@given(rows=st.lists(HEADERS, max_size=4))
def test_records_that_are_told_apart_are_no_duplicates(rows: list[list[Pair]]) -> None:
    records = [Record("t", 0, n, 0, b"k", b"v", headers) for n, headers in enumerate(rows)]
    if are_told_apart(records):
        assert len({identity(record) for record in records}) == len(records)


@given(rows=st.lists(st.one_of(HEADERS, IN_ORDER), max_size=4))
def test_the_short_ways_to_an_event_find_what_the_long_one_does(rows: list[list[Pair]]) -> None:
    for headers in [*rows, *rows]:  # the second time, their kind is known
        record = having(*headers)
        try:
            usual = usual_event(record, key="k", value=b"v")
        except InvalidEvent:
            with pytest.raises(InvalidEvent):
                any_event(record, key="k", value=b"v")
            continue
        if usual is not None:
            assert usual == any_event(record, key="k", value=b"v")


@given(several=st.lists(st.binary(max_size=3), min_size=2, max_size=2))
def test_an_event_of_a_known_kind_has_its_own_id_time_and_subject(several: list[bytes]) -> None:
    for number, text in enumerate([b"first", *several]):
        made = Event(
            topic="t", type="Placed", source="/shop", subject=text.hex() or None, value=text
        )
        key, value, headers = encode(made)
        record = Record("t", 0, number, 2, key, value, headers)
        found = usual_event(record, key=key, value=value)
        assert found == replace(made, content_type="application/octet-stream")
        assert type(found) is Event


def test_many_kinds_and_long_ones_are_not_remembered() -> None:
    for number in range(3_000):
        made = Event(topic="t", type=f"Placed{number}", source="/" + "x" * number)
        usual_event(Record("t", 0, 1, 2, None, None, encode(made)[2]), key=None, value=None)
    assert 0 < len(envelope._kinds) <= 1_000
    assert max(len(source) for _, source, _ in envelope._kinds.values()) < 1_000


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
