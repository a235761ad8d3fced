"""SQL that appends events, as values: nothing here touches a connection."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from psycopg import sql

from outbox.envelope import TRACEPARENT
from outbox.errors import InvalidEvent
from outbox.event import Event, Headers, Limits


class Statement(NamedTuple):
    """A query and its parameters, ready for any psycopg connection."""

    query: sql.Composed
    params: Sequence[object]


class _Row(NamedTuple):
    """The columns of one event, in the order of the entry point's parameters."""

    topic: str
    key: bytes | None
    value: bytes | None
    type: str
    id: UUID
    source: str
    subject: str | None
    time: object
    content_type: str | None


def append(events: Sequence[Event], *, schema: str, limits: Limits) -> Statement:
    """
    Return the statement that appends `events`, in their order, in one round trip.

    Raises:
        InvalidEvent: an event could never be published; the message says which and why.
    """
    rows = [_row(event, limits) for event in events]
    headers = [_stored_headers(event) for event in events]
    if len(rows) == 1:
        names, values = _split(headers[0])
        return Statement(_one(schema), [*rows[0], names or None, values or None])
    columns = [list(column) for column in zip(*rows, strict=True)]
    if not any(headers):
        return Statement(_many(schema), [*columns, None, None, None])
    names, values = _split(list(chain.from_iterable(headers)))
    return Statement(_many(schema), [*columns, [len(pairs) for pairs in headers], names, values])


def _row(event: Event, limits: Limits) -> _Row:
    key, value = event.key_bytes(), event.value_bytes()
    for what, data, most in (("key", key, limits.key), ("value", value, limits.value)):
        if data is not None and len(data) > most:
            msg = (
                f"event {event.id} ({event.type}) for topic {event.topic!r} has a {what} of "
                f"{len(data):,} bytes, the limit is {most:,}; store the payload elsewhere and "
                "send a reference, or raise the limit here and the broker's message.max.bytes"
            )
            raise InvalidEvent(msg)
    try:
        identity = UUID(event.id)
    except ValueError:
        msg = f"event id {event.id!r} is not a UUID; the outbox takes only those"
        raise InvalidEvent(msg) from None
    return _Row(
        event.topic,
        key,
        value,
        event.type,
        identity,
        event.source,
        event.subject,
        event.time,
        event.media_type(),
    )


def _stored_headers(event: Event) -> Headers:
    own: Headers = event.headers  # type: ignore[assignment]  # normalised when the event was made
    if event.traceparent is None:
        return own
    return ((TRACEPARENT, event.traceparent.encode()), *own)


def _split(pairs: Sequence[tuple[str, bytes | None]]) -> tuple[list[str], list[bytes | None]]:
    return [name for name, _ in pairs], [value for _, value in pairs]


@lru_cache(maxsize=64)
def _one(schema: str) -> sql.Composed:
    return sql.SQL(
        "SELECT {}.append(%t, %b::bytea, %b::bytea, %t, %b, %t, %t, %b, %t,"
        " %t::text[], %b::bytea[])"
    ).format(sql.Identifier(schema))


@lru_cache(maxsize=64)
def _many(schema: str) -> sql.Composed:
    return sql.SQL(
        "SELECT {}.append_many(%t::text[], %b::bytea[], %b::bytea[], %t::text[], %b::uuid[],"
        " %t::text[], %t::text[], %b::timestamptz[], %t::text[], %b::int4[], %t::text[],"
        " %b::bytea[])"
    ).format(sql.Identifier(schema))
