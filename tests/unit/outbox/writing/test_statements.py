"""The statement that appends events, as a value, and what it must not contain."""

from typing import Any

import pytest

from outbox import Event, InvalidEvent, Limits
from outbox.writing.statements import append

ID = "0190b5a0-0000-7000-8000-000000000001"
DEFAULTS = Limits()


def event(**fields: Any) -> Event:
    return Event(**{"topic": "orders", "type": "OrderPlaced", "id": ID, **fields})


def appended(
    *events: Event, schema: str = "outbox", limits: Limits = DEFAULTS
) -> tuple[str, list[object]]:
    query, params = append(events, schema=schema, limits=limits)
    return query.decode(), list(params)


def test_one_event_goes_through_the_single_entry_point() -> None:
    query, params = appended(event(key="k", value="v", headers=[("a", None)]))
    assert '"outbox".append(' in query
    assert params[:3] == ["orders", b"k", b"v"]
    assert ID in params
    assert params[-2:] == [["a"], [None]]


def test_many_events_are_one_statement_with_their_headers_end_to_end() -> None:
    events = [event(value=b"1", headers=[("a", b"1"), ("a", b"2")]), event(value=b"2")]
    query, params = appended(*events)
    assert '"outbox".append_many(' in query
    assert params[2] == [b"1", b"2"]
    assert params[-3:] == [[2, 0], ["a", "a"], [b"1", b"2"]]


def test_events_without_headers_carry_no_header_arrays() -> None:
    assert appended(event(), event())[1][-3:] == [None, None, None]


def test_the_trace_context_is_the_first_stored_header() -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    _, params = appended(event(traceparent=trace, headers=[("z", b"1")]))
    assert params[-2:] == [["traceparent", "z"], [trace.encode(), b"1"]]


def test_the_name_of_the_schema_is_quoted() -> None:
    query, _ = appended(event(), schema='Out"box')
    assert '"Out""box".append(' in query


@pytest.mark.parametrize(
    ("fields", "limits", "says"),
    [
        ({"key": "12345"}, {"key": 4}, r"5 bytes of key, the limit is 4"),
        ({"value": "ü" * 501}, {"value": 1000}, r"1,002 bytes of value, the limit is 1,000"),
        ({"headers": [("name", b"x" * 97)]}, {"headers": 100}, "and headers, the limit is 100"),
        ({"type": "T" * 20_000}, {}, "and headers, the limit is 16,384"),
        ({"subject": "S" * 20_000}, {}, "and headers, the limit is 16,384"),
        ({"type": "a\0b"}, {}, "NUL"),
        ({"source": "a\0b"}, {}, "NUL"),
        ({"subject": "\0"}, {}, "NUL"),
        ({"content_type": "\0"}, {}, "NUL"),
        ({"headers": [("a\0", b"")]}, {}, "NUL"),
        ({"id": "order-7"}, {}, "'order-7' is not a UUID"),
        ({"id": ID.upper()}, {}, "is not a UUID as RFC 9562 writes it"),
        ({"id": ID.replace("-", "")}, {}, "is not a UUID as RFC 9562 writes it"),
        ({"id": "{" + ID + "}"}, {}, "is not a UUID as RFC 9562 writes it"),
        ({"topic": "__consumer_offsets"}, {}, "Kafka's or Dovecote's own"),
        ({"topic": "dovecote.progress.shop"}, {}, "Kafka's or Dovecote's own"),
        *(
            ({"topic": f"dovecote.{each}"}, {}, "Kafka's or Dovecote's own")
            for each in ("markers.dedup", "push.slack.dead", "skips")
        ),
        ({"value": float("nan")}, {}, "cannot be written as JSON"),
    ],
)
def test_what_the_outbox_cannot_hold_is_refused(
    fields: dict[str, Any], limits: dict[str, int], says: str
) -> None:
    with pytest.raises(InvalidEvent, match=says):
        appended(event(**fields), limits=Limits(**limits))


def test_one_bad_event_refuses_the_whole_batch() -> None:
    with pytest.raises(InvalidEvent, match="order-7"):
        appended(event(), event(id="order-7"), event())


def test_limits_are_inclusive_and_count_bytes() -> None:
    _, params = appended(event(key="ü", value=b"x" * 9), limits=Limits(key=2, value=9))
    assert params[1:3] == ["ü".encode(), b"x" * 9]


def test_a_dovecote_topic_of_another_kind_is_anybodys() -> None:
    assert appended(event(topic="dovecote.progressive"))[1][0] == "dovecote.progressive"


def test_every_parameter_has_its_type_and_goes_as_text_where_codecs_may_be_set() -> None:
    statement = append([event(value=b"1"), event()], schema="outbox", limits=DEFAULTS)
    assert statement.query.count(b"::") == statement.query.count(b"%") == len(statement.params)
    assert "%" not in statement.numbered()
    assert statement.numbered().count("pg_catalog.textin($") == len(statement.params)
    assert statement.texts()[2] == '["\\\\x31", null]'
