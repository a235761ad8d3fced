"""
Event ⇄ Kafka record: CloudEvents 1.0, Kafka protocol binding, binary mode.

All header names are defined here; everything that reads or writes a record uses this module.
Attributes travel as `ce_*` headers, the media type as `content-type`, the value unchanged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from outbox.errors import InvalidEvent
from outbox.event import MOST_HEADERS, Event, require_time
from outbox.event import TRACEPARENT as _TRACEPARENT
from outbox.timestamps import END_OF_TIME, time_of

ID = "ce_id"
TYPE = "ce_type"
SOURCE = "ce_source"
SUBJECT = "ce_subject"
TIME = "ce_time"
SPECVERSION = "ce_specversion"
CONTENT_TYPE = "content-type"
TRACEPARENT = "traceparent"

ATTEMPT = "dovecote_attempt"
ROUND = "dovecote_round"
FIRST_SEEN = "dovecote_first_seen"
NOT_BEFORE = "dovecote_not_before"
ORIGIN = "dovecote_origin"
ERROR = "dovecote_error"
GROUP = "dovecote_group"
RESOLVES = "dovecote_resolves"
"""On a record that reports the fate of a dead letter: its offset, and `requeued` or `dropped`."""
WITHOUT_VALUE = "dovecote_without_value"
"""
On a dead letter whose value was left out, because its topic would not have taken it whole: where
the value is, its size in bytes and its SHA-256.
"""
HOPS = "dovecote_hops"
"""How often events were made of events up to this one; see `dedup.retries.storm`."""

FIRED = "dovecote_fired"
"""On a record made from a window: why the window fired."""
WINDOW_START = "dovecote_window_start"
WINDOW_END = "dovecote_window_end"
WINDOW_EVENTS = "dovecote_window_events"
REVISION = "dovecote_revision"
"""Number of times that the window has fired."""
WINDOW = frozenset({FIRED, WINDOW_START, WINDOW_END, WINDOW_EVENTS, REVISION})

UNREAD = "\udcff"
"""
The name of the one header that a record has whose headers cannot be read; its value says why.

No header of Kafka can have this name, because it is not text that UTF-8 can hold.
"""

FOREIGN_TYPE = "kafka.record"
"""The type given to a record that carries no CloudEvents headers."""

_V = TypeVar("_V")

Pair: TypeAlias = tuple[str, bytes | None]

UNREAD_HEADERS: tuple[Pair, ...] = ((UNREAD, None),)


def unread(count: int) -> tuple[Pair, ...]:
    """Return what stands for too many headers."""
    msg = f"it has {count:,} of them, and at most {MOST_HEADERS:,} are read"
    return ((UNREAD, msg.encode()),)


_ENVELOPE = {ID, TYPE, SOURCE, SUBJECT, TIME, SPECVERSION, CONTENT_TYPE, TRACEPARENT, UNREAD}
_USUAL = frozenset(_ENVELOPE - {UNREAD})
_REMEMBERED = 1_000
_OF_IDENTITY = {ID, SOURCE}
_OF_KIND = {SPECVERSION, TYPE, SOURCE, CONTENT_TYPE}
_FEWEST = 3

_Kind: TypeAlias = tuple[str, str, str | None]
"""Type, source and content type, which records of one kind share."""

_Parts: TypeAlias = tuple[_Kind, bytes, bytes, bytes | None, bytes | None]
"""The kind, then the headers of id, time, subject and trace."""

_kinds: dict[tuple[Pair, ...], _Kind] = {}
_MOST_KINDS = 1_000
DELIVERY = {ATTEMPT, ROUND, FIRST_SEEN, NOT_BEFORE, ORIGIN, ERROR, GROUP}


class Record(NamedTuple):
    """
    An event as Kafka holds it.

    `timestamp` should be in milliseconds since 1970; see `outbox.timestamps`.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Pair] = ()

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic; None: it is not known."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """
    The history of a record: attempts, rounds, and where it came from.

    `attempt` counts failures of one event and ends in a dead letter. `round` counts every trip
    through a retry topic; with the event's id, it tells copies from trips.
    """

    attempt: int = 1
    """Number of this attempt, from 1."""

    round: int = 0
    """Number of times that the event was put on a retry topic."""

    first_seen: int | None = None
    """When it was first handled, in milliseconds since 1970."""

    not_before: int | None = None
    """When it may be handled again, in milliseconds since 1970."""

    origin: str | None = None
    """`topic/partition/offset` of the record that was first handled."""

    error: str | None = None
    """Why the record is here."""

    group: str | None = None
    """The consumer group that gave the event up."""


def encode(event: Event) -> tuple[bytes | None, bytes | None, list[Pair]]:
    """Return the key, value and headers of the record that carries `event`."""
    headers: list[Pair] = [
        (ID, event.id.encode()),
        (TIME, format_time(event.time).encode()),
        *kind_headers(event.type, event.source, event.media_type()),
    ]
    if event.subject is not None:
        headers.append((SUBJECT, event.subject.encode()))
    if event.traceparent is not None:
        headers.append((TRACEPARENT, event.traceparent.encode()))
    headers.extend(event.headers)  # type: ignore[arg-type]  # normalised when the event was made
    return event.key_bytes(), event.value_bytes(), headers


def kind_headers(type_: str, source: str, content_type: str | None) -> tuple[Pair, ...]:
    """Return the headers that events of one kind share; cached, for the relay's hot path."""
    # A cache of long texts could hold many of the largest size.
    if len(type_) + len(source) + len(content_type or "") <= _REMEMBERED:
        return _kind_headers(type_, source, content_type)
    return _kind_headers.__wrapped__(type_, source, content_type)


@lru_cache(maxsize=4096)
def _kind_headers(type_: str, source: str, content_type: str | None) -> tuple[Pair, ...]:
    headers: list[Pair] = [
        (SPECVERSION, b"1.0"),
        (TYPE, type_.encode()),
        (SOURCE, source.encode()),
    ]
    if content_type is not None:
        headers.append((CONTENT_TYPE, content_type.encode()))
    return tuple(headers)


def identity(record: Record) -> tuple[str, str]:
    """
    Return the identity of the event in `record`: its source and its id.

    This is the rule for all parts, as CloudEvents 1.0 has it: `source` and `id` together are
    unique for each event.

    * An event with a `ce_id` has this id, and its `ce_source`; its topic, if it has none. Two
      sources with equal ids are two events. The same source and id in two topics is one event.
    * A record without a `ce_id` is known by its place: its id is `topic/partition/offset`, with
      Kafka's id of the topic in place of its name. A topic that was deleted and made anew has
      another id, and so other events at the same places. The name stands there if the id is not
      known: a broker before 2.8 has none.
    * A copy on a retry topic or among dead letters has both written down, and keeps them. A copy
      without a source has the topic of its origin.

    Raises:
        InvalidEvent: the source or the id is not text.
    """
    found = {name: value for name, value in reversed(record.headers) if value}
    source, id_ = _text(SOURCE, found.get(SOURCE)), _text(ID, found.get(ID))
    return source or _home(record, found.get(ORIGIN)), id_ or place(record)


def _home(record: Record, origin: bytes | None) -> str:
    topic, *numbers = (origin or b"").decode(errors="replace").rsplit("/", 2)
    return topic if topic and len(numbers) == 2 else record.topic  # noqa: PLR2004  # a place


def place(record: Record) -> str:
    """Return the id of an event that has none of its own: the place of its record."""
    return f"{record.topic_id or record.topic}/{record.partition}/{record.offset}"


def decode(record: Record) -> Event:
    """
    Return the event that `record` carries.

    A foreign record (no `ce_id`) decodes too: `identity` says which id and source it has.

    Raises:
        InvalidEvent: an attribute is not text, `ce_time` is not a time, or the headers cannot be
            read. If the record has neither `ce_time` nor a timestamp that is a time, the event's
            `time` raises it.
    """
    return event(record, key=record.key, value=record.value)


def event(record: Record, *, key: bytes | str | None, value: object) -> Event:
    """
    Return the event that `record` carries, with a key and a value that were decoded already.

    Raises:
        InvalidEvent: as `decode`.
    """
    usual = usual_event(record, key=key, value=value)
    return any_event(record, key=key, value=value) if usual is None else usual


def usual_event(record: Record, *, key: bytes | str | None, value: object) -> Event | None:
    """
    Return what `event` returns, if nothing but the envelope's headers has to be read for it.

    None: a header is missing, doubled, of somebody else or of a history, or cannot be read.

    Most records are of this kind, and take a fifth of the time.
    """
    found = _in_order(record.headers) or _in_any_order(record.headers)
    if found is None:
        return None
    kind, id_, time, subject, trace = found
    # Bypass the constructor: it checks the input of callers, but all this was read from bytes, and
    # a consumer does it for every record.
    made: Any = _Blank()
    made.type, made.source, made.content_type = kind
    try:
        made.id = id_.decode()
        made.subject = None if subject is None else subject.decode()
        made.time = parse_time(time.decode())
    except UnicodeDecodeError:
        return None  # the longer way says which of them
    made.topic, made.key, made.value, made.headers = record.topic, key, value, ()
    made.traceparent = None if trace is None else _trace(_text(TRACEPARENT, trace))
    made.__class__ = Event
    event: Event = made
    return event


def _in_order(headers: Sequence[Pair]) -> _Parts | None:
    """
    Return the parts of headers that stand as `encode` writes them; None: look closer.

    Records of one kind share the headers in the middle, which are looked up as a whole.
    """
    if len(headers) < _FEWEST:
        return None
    (first, id_), (second, time), *rest = headers
    if first != ID or second != TIME or not id_ or not time:
        return None
    trace = rest.pop()[1] if rest[-1][0] == TRACEPARENT else None
    subject = rest.pop()[1] if rest and rest[-1][0] == SUBJECT else None
    kind = _kinds.get(tuple(rest))
    return None if kind is None else (kind, id_, time, subject, trace)


def _in_any_order(headers: Sequence[Pair]) -> _Parts | None:
    """Return the parts of headers, and remember their kind; None: they are not the usual ones."""
    found = dict(headers)
    get = found.get
    id_, source, type_, time = get(ID), get(SOURCE), get(TYPE), get(TIME)
    if not (id_ and source and type_ and time):
        return None
    if len(found) != len(headers) or not _USUAL.issuperset(found):
        return None
    if get(SPECVERSION, b"1.0") != b"1.0":
        return None
    content_type = get(CONTENT_TYPE)
    try:
        kind = (
            type_.decode(),
            source.decode(),
            None if content_type is None else content_type.decode(),
        )
    except UnicodeDecodeError:
        return None  # the longer way says which of them
    if headers[0][0] == ID and headers[1][0] == TIME:
        _remember(tuple(pair for pair in headers if pair[0] in _OF_KIND), kind)
    return kind, id_, time, get(SUBJECT), get(TRACEPARENT)


def _remember(headers: tuple[Pair, ...], kind: _Kind) -> None:
    # Texts of others: neither many nor long ones may fill the memory.
    if sum(len(value or b"") for _, value in headers) <= _REMEMBERED:
        if len(_kinds) >= _MOST_KINDS:
            _kinds.clear()
        _kinds[headers] = kind


def any_event(record: Record, *, key: bytes | str | None, value: object) -> Event:
    """
    Return what `event` returns, for any record.

    Raises:
        InvalidEvent: as `decode`.
    """
    found: dict[str, str | None] = {}
    # Keep the extension attributes (`ce_…`) of other producers: only our own callers may not set
    # them.
    rest: list[Pair] = []
    for pair in record.headers:
        name, data = pair
        if name not in _ENVELOPE:
            rest.append(pair)
        elif name not in _OF_IDENTITY or (data and name not in found):  # as `identity` has it
            found[name] = _text(name, data)
    get = found.get
    text = get(TIME)
    time = parse_time(text) if text else time_of(record.timestamp)
    if UNREAD in found:
        require_readable(record)
    made = _new(Event if time is not None else _Timeless)
    _set_topic(made, record.topic)
    _set_type(made, get(TYPE) or FOREIGN_TYPE)
    _set_key(made, key)
    _set_value(made, value)
    _set_id(made, get(ID) or place(record))
    _set_source(made, get(SOURCE) or _home(record, dict(rest).get(ORIGIN)))
    _set_subject(made, get(SUBJECT))
    if time is not None:
        _set_time(made, time)
    _set_content_type(made, get(CONTENT_TYPE))
    _set_headers(made, tuple(rest))
    _set_traceparent(made, _trace(get(TRACEPARENT)))
    return made


def _trace(text: str | None) -> str | None:
    return text if text and _TRACEPARENT.fullmatch(text) else None


class _Timeless(Event):
    """An event of a record that says nowhere when it happened: everything but `time` is known."""

    __slots__ = ()

    @property
    def time(self) -> datetime:
        msg = (
            f"the time of event {self.id!r} is not known: its record has no {TIME}, and its "
            "timestamp is not a time since 1970"
        )
        raise InvalidEvent(msg)

    def __repr__(self) -> str:
        known = [each.name for each in fields(self) if each.name != "time"]
        return f"Event({', '.join(f'{name}={getattr(self, name)!r}' for name in known)})"


class _Blank(Generic[_V]):
    """
    Becomes an `Event` once its fields are set, and cannot be changed from then on.

    To set them takes a third of the time that it takes to go around an event's own refusal.
    """

    __slots__ = tuple(each.name for each in fields(Event))


_new = object.__new__
(
    _set_topic,
    _set_type,
    _set_key,
    _set_value,
    _set_id,
    _set_source,
    _set_subject,
    _set_time,
    _set_content_type,
    _set_headers,
    _set_traceparent,
) = (getattr(Event, field.name).__set__ for field in fields(Event))


def require_readable(record: Record) -> None:
    """
    Check that the client could read the record's headers.

    Raises:
        InvalidEvent: it could not.
    """
    if record.headers and record.headers[0][0] == UNREAD:
        why = record.headers[0][1] or (
            b"the name of one is not UTF-8; write the record again with names in UTF-8"
        )
        msg = (
            f"the headers of {record.topic}/{record.partition}/{record.offset} cannot be read: "
            f"{why.decode(errors='replace')}"
        )
        raise InvalidEvent(msg)


def was_delivered(record: Record) -> bool:
    """Return whether `record` has a history, so that `delivery` is worth a call."""
    return not DELIVERY.isdisjoint([name for name, _ in record.headers])


def delivery(record: Record) -> Delivery:
    """
    Return the history of `record`; a record that never failed has the defaults.

    Raises:
        InvalidEvent: a delivery header is not a number that counts or tells a time.
    """
    found = {name: _text(name, value) for name, value in record.headers if name in DELIVERY}
    return Delivery(
        attempt=_number(found, ATTEMPT) or 1,
        round=_number(found, ROUND) or 0,
        first_seen=_number(found, FIRST_SEEN),
        not_before=_number(found, NOT_BEFORE),
        origin=found.get(ORIGIN),
        error=found.get(ERROR),
        group=found.get(GROUP),
    )


def due(record: Record) -> int:
    """
    Return `not_before` of `delivery`, or 0; takes a third of the time.

    Raises:
        InvalidEvent: a delivery header is not a number that counts or tells a time.
    """
    found = {name: _text(name, value) for name, value in record.headers if name in DELIVERY}
    for name in (ATTEMPT, ROUND, FIRST_SEEN):
        _number(found, name)
    # The settings of the delay say how far ahead it may be.
    return _number(found, NOT_BEFORE, most=2**63 - 1) or 0


def with_delivery(headers: Iterable[Pair], state: Delivery) -> list[Pair]:
    """Return `headers` with `state` in place of their delivery headers."""
    kept = [pair for pair in headers if pair[0] not in DELIVERY]
    fields = (
        (ATTEMPT, state.attempt),
        (ROUND, state.round),
        (FIRST_SEEN, state.first_seen),
        (NOT_BEFORE, state.not_before),
        (ORIGIN, state.origin),
        (ERROR, state.error),
        (GROUP, state.group),
    )
    return kept + [
        (name, str(value).encode(errors="backslashreplace"))
        for name, value in fields
        if value is not None
    ]


def retried(record: Record, *, now: int, not_before: int, error: str, failed: bool) -> Delivery:
    """Return the state for a copy on a retry topic: each trip is a round, a failure an attempt."""
    before = delivery(record)
    return replace(
        before,
        attempt=before.attempt + failed,
        round=before.round + 1,
        first_seen=before.first_seen or now,
        not_before=not_before,
        origin=before.origin or f"{record.topic}/{record.partition}/{record.offset}",
        error=error,
    )


def format_time(time: datetime) -> str:
    """Return an RFC 3339 timestamp in UTC, to the microsecond."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    """
    Return the time in an RFC 3339 timestamp.

    Raises:
        InvalidEvent: it is not one, or has no time zone.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"{TIME} {text!r} is not an RFC 3339 timestamp"
        raise InvalidEvent(msg) from error
    if time.tzinfo is None:
        msg = f"{TIME} {text!r} has no time zone"
        raise InvalidEvent(msg)
    if not MINYEAR < time.year < MAXYEAR:
        require_time(time)
    return time


def _text(name: str, value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        if name == TRACEPARENT:
            # It is no trace context, which is no reason to refuse an event.
            return None
        msg = f"header {name} is not UTF-8 text"
        raise InvalidEvent(msg) from error


def _number(found: dict[str, str | None], name: str, most: int | None = None) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError as error:
        msg = f"header {name} must be a whole number, not {text[:80]!r}"
        raise InvalidEvent(msg) from error
    most = most or _MOST.get(name, _MOST_MILLISECONDS)
    if not 0 <= number <= most:
        msg = f"header {name} must be a number from 0 to {most}"
        raise InvalidEvent(msg)
    return number


# Postgres keeps both as an `int`, which must also hold the next one.
_MOST = {ATTEMPT: 2**31 - 2, ROUND: 2**31 - 2}
_MOST_MILLISECONDS = END_OF_TIME - 1
