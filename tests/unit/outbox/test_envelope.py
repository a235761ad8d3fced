"""Event to Kafka record and back: nothing is lost, and foreign records are events too."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox import Event, InvalidEvent
from outbox.envelope import (
    FOREIGN_TYPE,
    Delivery,
    Pair,
    Record,
    decode,
    delivery,
    encode,
    format_time,
    identity,
    parse_time,
    retried,
    with_delivery,
)

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"

text = st.text(st.characters(exclude_categories=["Cs"]))
words = text.filter(bool)
own_names = words.filter(
    lambda name: (
        "\0" not in name
        and not name.lower().startswith(("ce_", "dovecote_"))
        and name.lower() not in {"content-type", "traceparent"}
    )
)
zones = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
events = st.builds(
    Event,
    topic=st.from_regex(r"[a-zA-Z0-9_-]{1,249}", fullmatch=True),
    type=words,
    key=st.none() | st.binary() | text,
    value=st.none() | st.binary() | text | st.dictionaries(text, st.integers() | text),
    source=words,
    subject=st.none() | text,
    time=st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones),  # noqa: DTZ001  # zones come with it
    content_type=st.none() | words,
    headers=st.lists(st.tuples(own_names, st.none() | st.binary() | text)),
    traceparent=st.none() | st.just(TRACE),
)


def record(headers: Sequence[Pair] = (), **fields: Any) -> Record:
    place = {"topic": "t", "partition": 3, "offset": 7, "timestamp": 1_700_000_000_123}
    return Record(**{**place, "key": None, "value": None, "headers": headers, **fields})


@given(events)
def test_what_was_encoded_decodes_to_the_same_event(event: Event) -> None:
    key, value, headers = encode(event)
    found = decode(record(headers, topic=event.topic, key=key, value=value))
    for name in ("topic", "type", "id", "source", "subject", "headers", "traceparent"):
        assert getattr(found, name) == getattr(event, name)
    assert found.time == event.time
    assert found.key == event.key_bytes()
    assert found.value == event.value_bytes()
    assert found.media_type() == event.media_type() or event.value is None


@given(events)
def test_encoding_what_was_decoded_changes_nothing(event: Event) -> None:
    key, value, headers = encode(event)
    again = decode(record(headers, topic=event.topic, key=key, value=value))
    if value is not None:
        assert encode(again) == (key, value, headers)


def test_the_headers_are_cloudevents_in_binary_mode() -> None:
    event = Event(
        topic="orders",
        type="OrderPlaced",
        id="0190b5a0-0000-7000-8000-000000000001",
        source="/orders",
        subject="42",
        time=datetime(2013, 1, 1, 12, tzinfo=timezone(timedelta(hours=1))),
        value={"total": 3},
        headers=[("tenant", "a")],
        traceparent=TRACE,
    )
    assert encode(event)[2] == [
        ("ce_id", b"0190b5a0-0000-7000-8000-000000000001"),
        ("ce_time", b"2013-01-01T11:00:00.000000Z"),
        ("ce_specversion", b"1.0"),
        ("ce_type", b"OrderPlaced"),
        ("ce_source", b"/orders"),
        ("content-type", b"application/json"),
        ("ce_subject", b"42"),
        ("traceparent", TRACE.encode()),
        ("tenant", b"a"),
    ]


def test_a_tombstone_has_no_content_type() -> None:
    assert "content-type" not in dict(encode(Event(topic="t", type="Gone"))[2])


def test_a_foreign_record_is_an_event_named_by_its_place() -> None:
    found = decode(record([("other", b"\xff")], key=b"k", value=b"v"))
    assert found.id == "t/3/7"
    assert (found.type, found.source) == (FOREIGN_TYPE, "t")
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("other", b"\xff"),))
    assert found.time == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def test_a_foreign_record_of_a_topic_made_again_has_another_id() -> None:
    class Known(Record):
        topic_id = "AAAA"

    assert decode(Known(*record())).id == "AAAA/3/7"
    assert identity(Known(*record([("ce_id", b"")]))) == ("t", "AAAA/3/7")


def test_extension_attributes_of_other_producers_stay() -> None:
    headers = [("ce_id", b"x"), ("ce_partitionkey", b"p"), ("ce_partitionkey", b"q")]
    assert decode(record(headers)).headers == (
        ("ce_partitionkey", b"p"),
        ("ce_partitionkey", b"q"),
    )


def test_the_first_of_several_ids_counts_everywhere() -> None:
    doubled = record([("ce_id", b"first"), ("ce_id", b"second")])
    assert identity(doubled)[1] == decode(doubled).id == "first"
    sources = record(
        [("ce_id", b"e"), ("ce_source", b""), ("ce_source", b"a"), ("ce_source", b"b")]
    )
    assert identity(sources) == (decode(sources).source, "e") == ("a", "e")


def test_an_event_is_known_by_its_source_and_its_id() -> None:
    studio, lms = (record([("ce_id", b"7"), ("ce_source", each)]) for each in (b"/a", b"/b"))
    assert identity(studio) == ("/a", "7") != identity(lms)
    assert identity(studio._replace(topic="other")) == identity(studio)
    without = record([("ce_id", b"7")])
    assert identity(without) == ("t", "7")
    assert identity(without._replace(topic="other")) == ("other", "7")


def test_a_broken_trace_context_is_dropped_not_fatal() -> None:
    assert decode(record([("traceparent", b"00-zz")])).traceparent is None


@pytest.mark.parametrize(
    ("headers", "fields", "says"),
    [
        ([("ce_id", b"\xff")], {}, "ce_id is not UTF-8"),
        ([("ce_type", b"\xff")], {}, "ce_type is not UTF-8"),
        ([("ce_time", b"yesterday")], {}, "'yesterday' is not an RFC 3339"),
        ([("ce_time", b"2013-01-01T00:00:00")], {}, "no time zone"),
        ([("ce_time", b"2013-01-01")], {}, "no time zone"),
        ([("ce_time", b"2013-13-01T00:00:00Z")], {}, "is not an RFC 3339"),
        ([("ce_time", b"0001-01-01T00:00:00+03:00")], {}, "years 1 to 9999"),
    ],
)
def test_a_record_that_is_no_event_is_refused(
    headers: list[Pair], fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidEvent, match=says):
        decode(record(headers, **fields))


@pytest.mark.parametrize(
    "written",
    ["2013-01-01T11:00:00Z", "2013-01-01T12:00:00+01:00", "2013-01-01T11:00:00.000000000Z"],
)
def test_a_time_may_be_written_as_rfc_3339_allows(written: str) -> None:
    assert parse_time(written) == datetime(2013, 1, 1, 11, tzinfo=UTC)


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=zones))  # noqa: DTZ001  # zones come with it
def test_a_time_survives_its_text(time: datetime) -> None:
    assert parse_time(format_time(time)) == time


deliveries = st.builds(
    Delivery,
    attempt=st.integers(1, 10**6),
    round=st.integers(0, 10**6),
    first_seen=st.none() | st.integers(0, 253_402_300_799_999),
    not_before=st.none() | st.integers(0, 253_402_300_799_999),
    origin=st.none() | text,
    error=st.none() | text,
)


@given(st.lists(st.tuples(own_names, st.none() | st.binary())), deliveries, deliveries)
def test_delivery_state_replaces_what_was_there(
    own: list[Pair], first: Delivery, second: Delivery
) -> None:
    plain = [pair for pair in own if not pair[0].startswith("dovecote_")]
    written = with_delivery(with_delivery(plain, first), second)
    assert delivery(record(written)) == second
    assert written[: len(plain)] == plain


def test_a_record_that_never_failed_has_the_defaults() -> None:
    assert delivery(record([("other", b"1")])) == Delivery(attempt=1, round=0)


@pytest.mark.parametrize("name", ["dovecote_attempt", "dovecote_round", "dovecote_not_before"])
def test_a_delivery_header_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"{name} must be a whole number"):
        delivery(record([(name, b"many")]))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("dovecote_attempt", -3_000_000_000),
        ("dovecote_attempt", 2**31 - 1),
        ("dovecote_round", -1),
        ("dovecote_round", 2**31 - 1),
        ("dovecote_first_seen", 253_402_300_800_000),
        ("dovecote_not_before", 2**63 - 1),
    ],
)
def test_a_delivery_header_out_of_range_is_refused(name: str, number: int) -> None:
    with pytest.raises(InvalidEvent, match=f"header {name} must be a number from 0 to"):
        delivery(record([(name, str(number).encode())]))


def test_the_number_after_the_largest_fits_the_tables() -> None:
    most = {"dovecote_attempt": b"2147483646", "dovecote_round": b"2147483646"}
    after = retried(record(list(most.items())), now=1, not_before=2, error="why", failed=True)
    assert (after.attempt, after.round) == (2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(("failed", "attempt"), [(True, 4), (False, 3)])
def test_a_trip_raises_the_round_and_only_a_failure_the_attempt(
    failed: bool,  # noqa: FBT001  # the case itself
    attempt: int,
) -> None:
    before = record(with_delivery([], Delivery(attempt=3, round=5, first_seen=11, origin="a/0/1")))
    after = retried(before, now=99, not_before=100, error="why", failed=failed)
    assert after == Delivery(
        attempt=attempt, round=6, first_seen=11, not_before=100, origin="a/0/1", error="why"
    )


def test_the_first_trip_remembers_where_the_record_came_from() -> None:
    after = retried(record(), now=99, not_before=100, error="why", failed=True)
    assert (after.first_seen, after.origin) == (99, "t/3/7")
