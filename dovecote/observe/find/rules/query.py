"""A query for events, and the times that it bounds."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from dedup.rules.unread import Place, place_of
from outbox.errors import BadSettings

MARGIN = timedelta(minutes=1)
"""How far the clocks of a writer and of a broker may be apart."""

WINDOW = timedelta(hours=1)
"""How far a search for a key looks back, if nothing says since when."""

# A record is there a moment after its event was made, unless its relay was away.
_NEAR = timedelta(seconds=30)
_BEFORE = timedelta(milliseconds=500)
_MOST_CHARACTERS = 10_000
_VERSION = 7
# No record is older, and no time in UTC is later.
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search for the event of an `id`, or for all events of a `key`."""

    id: str | None = None
    """The id of an event, or its name: `id@source`."""
    key: bytes | None = None
    topic: str | None = None
    """Only events of this topic."""
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    """Most events of a key; the newest ones stay."""

    def text(self) -> str:
        """Return it in words."""
        what = f"event {self.id!r}" if self.id is not None else f"key {shown(self.key)}"
        return what if self.topic is None else f"{what} of topic {self.topic!r}"


class Span(NamedTuple):
    """A stretch of time, in milliseconds since 1970."""

    first: int
    until: int | None
    """None: up to the end."""


def checked(query: Query, now: datetime) -> Query:
    """
    Return a query with the bounds that follow from it.

    Raises:
        BadSettings: it names nothing, too much, or nothing whose time is known.
    """
    if (query.id is None) == (query.key is None):
        msg = "name one of the two: the ID of an event, or --key KEY"
        raise BadSettings(msg)
    if query.id is not None and not 0 < len(query.id) <= _MOST_CHARACTERS:
        msg = f"an id has 1 to {_MOST_CHARACTERS:,} characters"
        raise BadSettings(msg)
    if query.since is not None and query.until is not None and query.since >= query.until:
        msg = "--since must be before --until"
        raise BadSettings(msg)
    if query.limit < 1:
        msg = "--limit must be at least 1"
        raise BadSettings(msg)
    query = replace(query, since=_in_calendar(query.since), until=_in_calendar(query.until))
    if query.key is not None:
        since = (query.until or now) - WINDOW
        return query if query.since is not None else replace(query, since=since)
    if query.since is None and query.topic is None and not _is_bounded(query, now):
        msg = (
            f"{query.id!r:.200} is no UUIDv7, so its time is not known, and all topics would be "
            "read as a whole: give --since TIME, or --topic TOPIC"
        )
        raise BadSettings(msg)
    return query


def _in_calendar(at: datetime | None) -> datetime | None:
    return None if at is None else min(max(at, _EARLIEST), _LATEST)


def _is_bounded(query: Query, now: datetime) -> bool:
    return time_of(query, now) is not None or place(query) is not None


def ids(query: Query) -> Collection[str]:
    """Return the texts of the id that a record of the event may have."""
    if query.id is None:
        return ()
    found = {query.id, _uuid_text(query.id)}
    head, at, _ = query.id.rpartition("@")
    if at and head:
        found |= {head, _uuid_text(head)}
    return found


def is_of(query: Query, id_: str, source: str | None, name: str) -> bool:
    """Return whether an event is the one that is looked for; `name` is its `id@source`."""
    if query.id is None:
        return True
    given = {query.id, _uuid_text(query.id)}
    if id_ in given or name in given:
        return True
    head, at, tail = query.id.rpartition("@")
    return bool(at) and source in {None, tail} and id_ in {head, _uuid_text(head)}


def uuid_of(query: Query) -> UUID | None:
    """Return the id as Postgres keeps it; None: no event of an outbox has such an id."""
    for each in sorted(ids(query), key=len):
        if (found := _uuid(each)) is not None:
            return found
    return None


def time_of(query: Query, now: datetime) -> datetime | None:
    """Return when the event was made, as its UUIDv7 says; None: it says nothing."""
    found = uuid_of(query)
    if found is None or found.version != _VERSION:
        return None
    milliseconds = found.int >> 80
    latest = (now + timedelta(days=1)).timestamp() * 1000
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds <= latest else None


def place(query: Query) -> Place | None:
    """Return the place that an id names: that of an event without an id of its own."""
    if query.id is None:
        return None
    try:
        return place_of(query.id.rpartition("@")[0] if "@" in query.id else query.id)
    except ValueError:
        return None


def spans(query: Query, now: datetime) -> list[Span]:
    """
    Return what to read of the topic that the event is in, in this order, until it is found.

    Most events are in their topic at once, so that stretch comes first.
    """
    until = None if query.until is None else _ms(query.until)
    if query.since is not None:
        return [Span(_ms(query.since), until)]
    made = time_of(query, now)
    if made is None:
        return [Span(0, until)]
    near, after = made - _BEFORE, made + _NEAR
    return [
        Span(_ms(near), _ms(after)),
        Span(_ms(made - MARGIN), _ms(near)),
        Span(_ms(after), until),
    ]


def after(query: Query, now: datetime) -> Span:
    """Return what to read of a topic that copies of the event come to later."""
    found = spans(query, now)
    return Span(min(each.first for each in found), None)


def shown(key: bytes | None) -> str:
    """Return a key as text, or in hexadecimal where it is no text."""
    if key is None:
        return "none"
    try:
        return repr(key.decode())
    except UnicodeDecodeError:
        return f"hex {key.hex()}"


def _uuid_text(text: str) -> str:
    found = _uuid(text)
    return text if found is None else str(found)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _ms(time: datetime) -> int:
    return max(0, int(time.timestamp() * 1000))
