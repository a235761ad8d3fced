"""The definition of an event; a bad one is refused before anything else happens."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox import DovecoteError, Event, InvalidEvent
from outbox.event import new_id

SURROGATE = "\ud800"
EAST = timezone(timedelta(hours=3))


class Unzoned(tzinfo):
    """A time zone that does not know its offset, which Python calls naive."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def event(**fields: Any) -> Event:
    return Event(**{"topic": "orders", "type": "OrderPlaced", **fields})


def circular() -> list[object]:
    inner: list[object] = []
    inner.append(inner)
    return inner


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"topic": ""}, "no topic"),
        ({"topic": None}, "no topic"),
        ({"topic": 7}, "topic must be a string, not int"),
        ({"topic": "two words"}, "not a Kafka topic name"),
        ({"topic": "orders\n"}, "not a Kafka topic name"),
        ({"topic": "bücher"}, "not a Kafka topic name"),
        ({"topic": ".."}, "not a Kafka topic name"),
        ({"topic": "x" * 250}, "not a Kafka topic name"),
        ({"type": ""}, "type must not be empty"),
        ({"type": b"x"}, "type must be a string, not bytes"),
        ({"type": SURROGATE}, "type .* UTF-8 cannot hold"),
        ({"id": ""}, "id must not be empty"),
        ({"id": 5}, "id must be a string, not int"),
        ({"source": ""}, "source must not be empty"),
        ({"source": None}, "source must be a string, not NoneType"),
        ({"subject": 5}, "subject must be a string, not int"),
        ({"subject": SURROGATE}, "subject .* UTF-8 cannot hold"),
        ({"content_type": 5}, "content_type must be a string, not int"),
        ({"key": 5}, "key must be bytes, str or None, not int"),
        ({"key": SURROGATE}, "key .* UTF-8 cannot hold"),
        ({"time": datetime(2013, 1, 1)}, "no time zone"),  # noqa: DTZ001  # the mistake
        ({"time": datetime(2013, 1, 1, tzinfo=Unzoned())}, "no time zone"),
        ({"time": "2013-01-01"}, "time must be a datetime, not str"),
        ({"time": None}, "time must be a datetime, not NoneType"),
        ({"time": datetime(1, 1, 1, tzinfo=EAST)}, "years 1 to 9999"),
        ({"traceparent": "00-1-2-3"}, "not W3C trace context"),
        ({"traceparent": 5}, "traceparent must be a string, not int"),
        ({"headers": None}, "pairs"),
        ({"headers": "ab"}, "pairs"),
        ({"headers": {"ab": b"x"}}, "pairs"),
        ({"headers": [("a",)]}, "pairs"),
        ({"headers": [("", b"x")]}, "header name must not be empty"),
        ({"headers": [("a\0b", b"x")]}, "must not have a NUL"),
        ({"headers": [(5, b"x")]}, "header name must be a string, not int"),
        ({"headers": [("a", 5)]}, "header 'a' must be bytes, str or None, not int"),
        ({"headers": [("a", SURROGATE)]}, "header 'a' .* UTF-8 cannot hold"),
        ({"headers": [(SURROGATE, b"x")]}, "UTF-8 cannot hold"),
        ({"headers": [("ce_id", b"x")]}, "'ce_id' belongs to the envelope"),
        ({"headers": [("CE_Type", b"x")]}, "'CE_Type' belongs to the envelope"),
        ({"headers": [("ce_x\n", b"x")]}, "is no attribute of CloudEvents"),
        ({"headers": [("ce_Sequence", b"x")]}, "is no attribute of CloudEvents"),
        ({"headers": [("ce_", b"x")]}, "is no attribute of CloudEvents"),
        ({"headers": [("ce_data", b"x")]}, "is no attribute of CloudEvents"),
        ({"headers": [("ce_datacontenttype", b"x")]}, "belongs to the envelope"),
        ({"headers": [("ce_sequence", b"\xff")]}, "so it must be a text"),
        ({"headers": [("ce_sequence", None)]}, "so it must be a text"),
        ({"headers": [("content-type", b"x")]}, "belongs to the envelope"),
        ({"headers": [("traceparent", b"x")]}, "belongs to the envelope"),
        ({"headers": [("dovecote_attempt", b"1")]}, "'dovecote_attempt' is Dovecote's own"),
        ({"headers": [("Dovecote_\n", b"1")]}, "is Dovecote's own; leave it out"),
        ({"headers": [("dovecote_hops2", b"1")]}, "is Dovecote's own"),
        ({"headers": [("a", b"1")] * 1_001}, "1,001 headers, and at most 1,000"),
    ],
)
def test_a_field_that_could_never_be_published_is_refused_by_name(
    fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidEvent, match=says) as refused:
        event(**fields)
    assert isinstance(refused.value, DovecoteError)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (float("nan"), "JSON has no nan"),
        (float("inf"), "JSON has no inf"),
        ({1, 2}, "a set has no order"),
        (object(), "JSON has no object"),
        ({("a", "b"): 1}, "a key is of type tuple"),
        (circular(), "contains itself"),
        (nested(100_000), "nested too deeply"),
        ({"name": SURROGATE}, "value.name .*UTF-8 cannot hold"),
        (SURROGATE, "UTF-8 cannot hold"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "says",
)
def test_a_value_that_cannot_be_serialised_is_refused(value: object, says: str) -> None:
    with pytest.raises(InvalidEvent, match=says):
        event(value=value).value_bytes()


@pytest.mark.parametrize(
    ("value", "stored", "media_type"),
    [
        (None, None, None),
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        (b"", b"", "application/octet-stream"),
        (bytearray(b"x"), b"x", "application/octet-stream"),
        (memoryview(b"xy")[1:], b"y", "application/octet-stream"),
        ("grüß", "grüß".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode(), "application/json"),
        ([], b"[]", "application/json"),
        (0, b"0", "application/json"),
        (False, b"false", "application/json"),
    ],
)
def test_a_value_is_stored_as_what_its_kind_says(
    value: object, stored: bytes | None, media_type: str | None
) -> None:
    made = event(value=value)
    assert made.value_bytes() == stored
    assert made.media_type() == media_type


def test_the_callers_content_type_wins() -> None:
    assert event(value=b"x", content_type="application/avro").media_type() == "application/avro"


@pytest.mark.parametrize(
    ("key", "stored"), [(None, None), ("", b""), ("ü", "ü".encode()), (b"\xff", b"\xff")]
)
def test_a_key_is_stored_as_its_bytes(key: bytes | str | None, stored: bytes | None) -> None:
    assert event(key=key).key_bytes() == stored


def test_headers_keep_their_order_and_may_repeat_a_name() -> None:
    pairs = [("b", b"1"), ("a", None), ("b", "zwölf"), ("B", b"")]
    assert event(headers=iter(pairs)).headers == (
        ("b", b"1"),
        ("a", None),
        ("b", "zwölf".encode()),
        ("B", b""),
    )


def test_a_uuid_is_taken_as_its_text() -> None:
    identity = uuid4()
    assert event(id=identity).id == str(identity)


def test_an_event_never_changes() -> None:
    with pytest.raises(FrozenInstanceError):
        event().id = "other"  # type: ignore[misc]  # the mistake


def test_new_ids_are_version_7_and_rise() -> None:
    made = [new_id() for _ in range(1000)]
    assert {UUID(text).version for text in made} == {7}
    assert all(before < after for before, after in pairwise(made))


MESS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.lists(st.text()),
    st.datetimes(), st.dictionaries(st.text(), st.text()), st.tuples(st.text(), st.text()),
    st.just(SURROGATE), st.lists(st.tuples(st.text(), st.binary())),
)  # fmt: skip
FIELDS = [
    "topic", "type", "key", "value", "id", "source", "subject", "time", "content_type", "headers",
    "traceparent",
]  # fmt: skip


def accepted(make: Callable[[], Event]) -> Event | None:
    try:
        made = make()
        made.key_bytes()
        made.value_bytes()
    except InvalidEvent:
        return None
    return made


@given(st.dictionaries(st.sampled_from(FIELDS), MESS))
def test_whatever_is_passed_is_an_event_or_an_invalid_event(fields: dict[str, Any]) -> None:
    made = accepted(lambda: event(**fields))
    if made is not None:
        assert made.time.utcoffset() is not None
        assert all(name.encode() for name, _ in made.headers)
