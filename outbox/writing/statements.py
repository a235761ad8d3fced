"""Build the SQL that appends events, as values: nothing here touches a connection."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain, count
from json import dumps
from typing import LiteralString, NamedTuple, TypeAlias

from outbox.envelope import TRACEPARENT
from outbox.errors import InvalidEvent
from outbox.event import Event, Headers, Limits, require_headers
from outbox.tracing.headers import with_trace

# A record in such a topic would pass for Kafka's own, for a relay's progress, for an operator's
# decision, or for what push has put there.
_RESERVED_TOPIC = re.compile(r"__|dovecote\.((progress|markers|push)\.|skips)")
_PLACEHOLDER = re.compile(r"%[bt]::(\w+)(\[\])?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


Carried: TypeAlias = Callable[[Event], Headers]
"""Returns the headers with which an event carries the trace in which it is written."""


class Statement(NamedTuple):
    """A query and its parameters, ready for any psycopg connection."""

    query: bytes
    params: Sequence[object]

    def ours(self) -> list[object]:
        """Return the parameters for another library's cursor on psycopg's connection."""
        from outbox.postgres.ours import Ours

        return [None if param is None else Ours(param) for param in self.params]

    def numbered(self) -> str:
        """
        Return the query with placeholders `$1`, `$2`, …, for parameters that are all `texts`.

        They are of type cstring, the only one for which an application cannot set a codec: it is
        no type of a column.
        """
        return _numbered(self.query)

    def texts(self) -> list[str | None]:
        """Return the parameters of `numbered`: as Postgres writes them, and arrays as JSON."""
        return [
            dumps([_text(each) for each in param], ensure_ascii=False)
            if isinstance(param, list)
            else _text(param)
            for param in self.params
        ]


class _Row(NamedTuple):
    """The columns of one event, in the order of the entry point's parameters."""

    topic: str
    key: bytes | None
    value: bytes | None
    type: str
    id: str
    source: str
    subject: str | None
    time: object
    content_type: str | None


def append(
    events: Sequence[Event], *, schema: str, limits: Limits, carried: Carried | None = None
) -> Statement:
    """
    Return the statement that appends `events`, in their order, in one round trip.

    Events without a `traceparent` get the headers that `carried` returns.

    Raises:
        InvalidEvent: an event could never be published; the message says which and why.
    """
    if len(events) == 1:
        own = _stored_headers(events[0], carried)
        row = _row(events[0], own, limits)
        if not own:
            return Statement(_plain(schema), row)
        return Statement(_one(schema), [*row, *_split(own)])
    headers = [_stored_headers(event, carried) for event in events]
    rows = [_row(event, own, limits) for event, own in zip(events, headers, strict=True)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    if not any(headers):
        return Statement(_many(schema), [*columns, None, None, None])
    names, values = _split(list(chain.from_iterable(headers)))
    return Statement(_many(schema), [*columns, [len(pairs) for pairs in headers], names, values])


def _row(event: Event, headers: Headers, limits: Limits) -> _Row:
    key, value, media_type = event.key_bytes(), event.value_bytes(), event.media_type()
    text = "".join([event.type, event.source, event.subject or "", media_type or ""])
    size = 0
    for name, data in headers:
        text += name
        size += len(data or b"")
    if key is not None and len(key) > limits.key:
        raise _too_large(event, "key", len(key), limits.key)
    if value is not None and len(value) > limits.value:
        raise _too_large(event, "value", len(value), limits.value)
    if (size := size + len(text.encode())) > limits.headers:
        raise _too_large(event, "type, source, subject and headers", size, limits.headers)
    if "\0" in text:
        msg = f"event {event.id} for topic {event.topic!r}: Postgres holds no text with NUL in it"
        raise InvalidEvent(msg)
    if _RESERVED_TOPIC.match(event.topic):
        msg = f"event topic {event.topic!r} is Kafka's or Dovecote's own; choose another"
        raise InvalidEvent(msg)
    return _Row(
        event.topic,
        key,
        value,
        event.type,
        _identity(event),
        event.source,
        event.subject,
        event.time,
        media_type,
    )


def _too_large(event: Event, what: str, size: int, most: int) -> InvalidEvent:
    return InvalidEvent(
        f"event {event.id} ({event.type[:80]}) for topic {event.topic!r}: {size:,} bytes of "
        f"{what}, the limit is {most:,}; store the payload elsewhere and "
        "send a reference, or raise the limit here and the broker's message.max.bytes"
    )


def _identity(event: Event) -> str:
    # In another spelling, the database would return a different id from the one it was given.
    if not _UUID.fullmatch(event.id):
        msg = f"event id {event.id!r} is not a UUID as RFC 9562 writes it: lower case, four dashes"
        raise InvalidEvent(msg)
    return event.id


def _stored_headers(event: Event, carried: Carried | None) -> Headers:
    own: Headers = event.headers  # type: ignore[assignment]  # normalised when the event was made
    if own:
        require_headers([name for name, _ in own])
    if event.traceparent is not None:
        return ((TRACEPARENT, event.traceparent.encode()), *own)
    if carried is None or not (trace := carried(event)):
        return own
    parent, more = with_trace(event, trace)
    return more if parent is None else ((TRACEPARENT, parent.encode()), *more)


def _split(pairs: Sequence[tuple[str, bytes | None]]) -> tuple[list[str], list[bytes | None]]:
    return [name for name, _ in pairs], [value for _, value in pairs]


@lru_cache(maxsize=64)
def _plain(schema: str) -> bytes:
    # By far the most frequent case: omitted parameters cost nothing.
    return _in(
        schema,
        "SELECT {}.append(%t::text, %b::bytea, %b::bytea, %t::text, %t::uuid, %t::text,"
        " %t::text, %b::timestamptz, %t::text)",
    )


@lru_cache(maxsize=64)
def _one(schema: str) -> bytes:
    # As bytes: composing it anew for each event would cost as much as executing it.
    return _in(
        schema,
        "SELECT {}.append(%t::text, %b::bytea, %b::bytea, %t::text, %t::uuid, %t::text,"
        " %t::text, %b::timestamptz, %t::text, %t::text[], %b::bytea[])",
    )


@lru_cache(maxsize=64)
def _many(schema: str) -> bytes:
    # As bytes: composing it anew for each event would cost as much as executing it.
    return _in(
        schema,
        # Nullable columns go in binary: in text, NULL is just a word if `array_nulls` is off.
        "SELECT {}.append_many(%t::text[], %b::bytea[], %b::bytea[], %t::text[], %t::uuid[],"
        " %t::text[], %b::text[], %b::timestamptz[], %b::text[], %b::int4[], %t::text[],"
        " %b::bytea[])",
    )


def _in(schema: str, query: LiteralString) -> bytes:
    """Return a query with the schema's quoted name in place of `{}`."""
    # The first event that is written needs it, and no import of `outbox`.
    from psycopg import sql

    return sql.SQL(query).format(sql.Identifier(schema)).as_bytes()


@lru_cache(maxsize=64)
def _numbered(query: bytes) -> str:
    numbers = count(1)

    def placeholder(found: re.Match[str]) -> str:
        kind, text = found[1], f"pg_catalog.textin(${next(numbers)})"
        if not found[2]:
            return f"{text}::{kind}"
        # Not an array's own text: there, NULL is just a word if `array_nulls` is off.
        each = f"pg_catalog.json_array_elements_text({text}::json) AS each"
        return f"(SELECT pg_catalog.array_agg(each) FROM {each})::{kind}[]"  # noqa: S608  # constants

    return _PLACEHOLDER.sub(placeholder, query.decode())


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    return value.isoformat() if isinstance(value, datetime) else str(value)
