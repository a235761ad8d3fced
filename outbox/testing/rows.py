"""Events as a reader gets them, from the rows of the outbox and from statements that append."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from json import loads
from typing import Any

from outbox import envelope
from outbox.envelope import Pair, Record
from outbox.event import Event
from outbox.writing.statements import Statement

_COLUMNS = 9


def event_of(row: Sequence[Any], headers: Sequence[Pair]) -> Event:
    """
    Return the event of a row: topic, key, value, type, id, source, subject, time, content type.

    A key is text if it can be. A value of JSON is decoded, one of text is text, and any other is
    bytes.
    """
    topic, key, value, type_, id_, source, subject, time, content_type = row
    known: list[Pair] = [
        (envelope.ID, id_.encode()),
        (envelope.TIME, envelope.format_time(time).encode()),
        *envelope.kind_headers(type_, source, content_type),
    ]
    if subject is not None:
        known.append((envelope.SUBJECT, subject.encode()))
    record = Record(topic, 0, 0, round(time.timestamp() * 1000), key, value, [*known, *headers])
    return envelope.event(record, key=_text(key), value=_decoded(value, content_type))


def events_of(statement: Statement) -> Iterator[Event]:
    """Yield the events that a statement appends, in their order."""
    params = list(statement.params)
    first, rest = params[:_COLUMNS], params[_COLUMNS:]
    if not isinstance(first[0], list):
        yield event_of(first, _pairs(*rest) if rest else [])
        return
    columns: Any = first
    counts, names, values = rest
    if not isinstance(counts, list):
        counts = [0] * len(columns[0])
    pairs = iter(_pairs(names or [], values or []))
    for row, count in zip(zip(*columns, strict=True), counts, strict=True):
        yield event_of(row, [next(pairs) for _ in range(count)])


def _pairs(names: Any, values: Any) -> list[Pair]:  # noqa: ANN401  # lists
    return list(zip(names, values, strict=True))


def time_of(text: str) -> datetime:
    """Return the time that Postgres writes so in JSON."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _text(key: bytes | None) -> bytes | str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key


def _decoded(value: bytes | None, content_type: str | None) -> object:
    kind = (content_type or "").partition(";")[0].strip().lower()
    if value is None:
        return None
    try:
        if kind == "application/json" or kind.endswith("+json"):
            return loads(value)
        if kind.startswith("text/"):
            return value.decode()
    except (ValueError, RecursionError):
        pass  # the event says that it is what it is not: its bytes are still what was written
    return value
