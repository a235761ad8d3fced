"""A row's record has the headers that the envelope gives to its event."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from outbox import Event, envelope
from outbox.envelope import encode
from relay.decoding.headers import Headers, Value, format_time, headers
from relay.rules.row import Row

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

# Few of each, so that neighbours share them, and times on both sides of a second and of 2000.
events = st.builds(
    Event,
    topic=st.just("orders"),
    type=st.sampled_from(["OrderPlaced", "OrderPaid", "Übergabe"]),
    source=st.sampled_from(["/orders", "/shop"]),
    subject=st.sampled_from([None, "order 7"]),
    content_type=st.sampled_from([None, "application/json"]),
    time=st.one_of(
        st.integers(-2_000_000, 2_000_000).map(lambda n: _EPOCH + timedelta(microseconds=n)),
        st.datetimes(timezones=st.just(UTC)),
    ),
    headers=st.sampled_from([(), [("tenant", b"a")], [("tenant", None), ("tenant", b"b")]]),
)


def row(event: Event) -> Row:
    names, values = zip(*event.headers, strict=True) if event.headers else (None, None)
    return (
        1,
        event.id,
        (event.time - _EPOCH) // timedelta(microseconds=1),
        event.topic,
        event.key_bytes(),
        event.value_bytes(),
        event.type,
        event.source,
        event.subject,
        event.media_type(),
        names,
        values,
    )


def pairs(headers: Headers) -> Sequence[tuple[str, Value]]:
    return list(headers.items()) if isinstance(headers, dict) else headers


@given(st.lists(events, max_size=8))
def test_each_row_has_the_headers_of_its_event(given: Sequence[Event]) -> None:
    made = [
        [(name, data.encode() if isinstance(data, str) else data) for name, data in pairs(each)]
        for each in headers(map(row, given))
    ]
    assert made == [encode(event)[2] for event in given]


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_is_written_as_the_envelope_writes_it(time: datetime) -> None:
    microseconds = (time - _EPOCH) // timedelta(microseconds=1)
    assert format_time(microseconds) == envelope.format_time(time)
