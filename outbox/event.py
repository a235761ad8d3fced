"""An event, and the rules by which it is valid."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias
from uuid import UUID

from uuid_utils import uuid7

from outbox.errors import InvalidEvent
from outbox.values import as_json

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V_co = TypeVar("V_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    V_co = TypeVar("V_co", covariant=True)

HeaderValue: TypeAlias = bytes | str | None
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

# Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# The envelope owns these; a second copy from the caller could contradict it.
_RESERVED = re.compile(
    r"ce_(id|type|source|subject|time|specversion|datacontenttype)|content-type|traceparent",
    re.IGNORECASE,
)
# CloudEvents 1.0, naming conventions: lower-case letters and digits; `data` names the value.
_EXTENSION = re.compile(r"ce_(?!data\Z)[a-z0-9]{1,100}")
# Dovecote writes these itself, except for the hops that `dedup.retries.storm` gives to handlers.
_OURS = re.compile(r"dovecote_(?!hops\Z).*", re.IGNORECASE | re.DOTALL)
# W3C Trace Context, version 00.
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


MOST_HEADERS = 1_000
"""The most headers of one event: each costs many times its bytes wherever it is read."""


class Limits(NamedTuple):
    """
    The most bytes of one event that `outbox.write` lets into the outbox.

    The defaults together fit a broker's default `message.max.bytes` (1,048,588).
    """

    key: int = 16_384
    value: int = 1_000_000
    headers: int = 16_384
    """Bytes of all headers' names and values, and of the event's type, source and subject."""


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562): unique, and rising with time."""
    return str(uuid7())


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[V_co]):
    """
    A fact that happened, on its way to a Kafka topic.

    `Event[OrderPlaced]` is one whose value is an `OrderPlaced`.

    An event is made once, with an `id` that never changes: every copy that any part of Dovecote
    makes of the event has the same id, and consumers deduplicate by it.

    Raises:
        InvalidEvent: a field could never be published; the message names it.
    """

    topic: str
    """Kafka topic, by Kafka's own rule for names."""

    type: str
    """The fact, in the past tense: `OrderPlaced` (CloudEvents `type`)."""

    key: bytes | str | None = None
    """Record key: events with the same key stay in order. None: no order is needed."""

    value: V_co = None  # type: ignore[assignment]  # the value of a tombstone
    """
    `bytes`, `str`, or what `outbox.values` can write as JSON, typed objects too; None is a
    tombstone.
    """

    id: str = field(default_factory=new_id)
    """Identity that all copies share. A UUID object becomes its text."""

    source: str = "dovecote"
    """
    The system that reports the event: a URI reference such as `/orders` (CloudEvents `source`).
    """

    subject: str | None = None
    """The thing within the source that the event is about (CloudEvents `subject`)."""

    time: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it happened; with a time zone."""

    content_type: str | None = None
    """Media type of the value; None: derived from the value (`application/json` for JSON)."""

    headers: Iterable[tuple[str, HeaderValue]] = ()
    """
    More Kafka headers, in order, at most 1,000; a name may repeat. `ce_sequence` and others are
    extension attributes of CloudEvents; the attributes that are fields here, and `dovecote_*`,
    are refused.
    """

    traceparent: str | None = None
    """W3C trace context of the cause; None: that of the current span when the event is written."""

    def __post_init__(self) -> None:
        """Normalise fields that have several spellings, then refuse what cannot be published."""
        if isinstance(self.id, UUID):
            object.__setattr__(self, "id", str(self.id))
        if self.headers != ():
            object.__setattr__(self, "headers", _headers(self.headers))
        _require_topic(self.topic)
        for name, text in (("id", self.id), ("type", self.type), ("source", self.source)):
            if not _text("event", name, text):
                msg = f"event {name} must not be empty"
                raise InvalidEvent(msg)
        for name, given in (
            ("subject", self.subject),
            ("content_type", self.content_type),
            ("traceparent", self.traceparent),
        ):
            if given is not None:
                _text("event", name, given)
        if not (self.key is None or isinstance(self.key, bytes | str)):
            msg = f"event key must be bytes, str or None, not {type(self.key).__name__}"
            raise InvalidEvent(msg)
        if isinstance(self.key, str):
            _text("event", "key", self.key)
        require_time(self.time)
        if self.traceparent is not None and not TRACEPARENT.fullmatch(self.traceparent):
            msg = f"event traceparent {self.traceparent!r} is not W3C trace context"
            raise InvalidEvent(msg)

    def attribute(self, name: str) -> str | None:
        """Return an extension attribute of CloudEvents, such as `sequence` or `dataschema`."""
        wanted = f"ce_{name}"
        for each, value in self.headers:
            if each == wanted and value:
                return value.decode(errors="replace") if isinstance(value, bytes) else value
        return None

    def key_bytes(self) -> bytes | None:
        """Return the key as Kafka holds it."""
        return self.key.encode() if isinstance(self.key, str) else self.key

    def value_bytes(self) -> bytes | None:
        """
        Return the value as Kafka holds it.

        Raises:
            InvalidEvent: JSON cannot hold the value; the message says where in it.
        """
        match self.value:
            case None | bytes():
                return self.value
            case bytearray() | memoryview():
                return bytes(self.value)
            case str(text):
                return _text("event", "value", text).encode()
            case value:
                return as_json(value)

    def media_type(self) -> str | None:
        """
        Return `content_type`, or the media type for this kind of value; None for a tombstone.
        """
        if self.content_type is not None or self.value is None:
            return self.content_type
        match self.value:
            case bytes() | bytearray() | memoryview():
                return "application/octet-stream"
            case str():
                return "text/plain; charset=utf-8"
            case _:
                return "application/json"


def _text(of: str, what: str, text: object) -> str:
    """Return `text` if it is a string that UTF-8 can hold."""
    if not isinstance(text, str):
        msg = f"{of} {what} must be a string, not {type(text).__name__}"
        raise InvalidEvent(msg)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = (
            f"{of} {what} {text[:80]!r} has a character that UTF-8 cannot hold (a lone surrogate)"
        )
        raise InvalidEvent(msg) from error
    return text


def _require_topic(topic: object) -> None:
    if not topic:
        msg = "event has no topic; name the Kafka topic it belongs to"
        raise InvalidEvent(msg)
    if not _TOPIC.fullmatch(_text("event", "topic", topic)) or topic in {".", ".."}:
        msg = f"event topic {topic!r} is not a Kafka topic name (letters, digits, `.`, `_`, `-`)"
        raise InvalidEvent(msg)


def require_time(time: object) -> None:
    """Refuse a value that is not a datetime, has no time zone, or does not exist in UTC."""
    if not isinstance(time, datetime):
        msg = f"event time must be a datetime, not {type(time).__name__}"
        raise InvalidEvent(msg)
    if time.tzinfo is UTC:
        return
    if time.utcoffset() is None:
        msg = f"event time {time!s} has no time zone; use datetime.now(UTC)"
        raise InvalidEvent(msg)
    try:
        time.astimezone(UTC)
    except OverflowError as error:
        msg = f"event time {time!s} lies outside the years 1 to 9999 in UTC"
        raise InvalidEvent(msg) from error


def require_headers(names: Collection[str]) -> None:
    """
    Refuse headers that are too many, or that would pass for Dovecote's own.

    An event that was decoded from a record may have such headers, so writers call this as well.

    Raises:
        InvalidEvent: one is, or there are too many.
    """
    if len(names) > MOST_HEADERS:
        msg = f"event has {len(names):,} headers, and at most {MOST_HEADERS:,} are allowed"
        raise InvalidEvent(msg)
    for name in names:
        if _OURS.fullmatch(name):
            msg = (
                f"header {name[:80]!r} is Dovecote's own; leave it out where you copy the headers "
                "of a record"
            )
            raise InvalidEvent(msg)


def headers_of_output(headers: Iterable[tuple[str, HeaderValue]]) -> Headers:
    """
    Return the headers that a handler gives to its output.

    Dovecote's own are left out: a handler that passes on the headers of its event has them from
    there, and they tell of the event's attempts.

    Raises:
        InvalidEvent: a record cannot have one of them, or there are too many.
    """
    found = [_header(name, value) for name, value in _pairs(headers)]
    kept = [pair for pair in found if not _OURS.fullmatch(pair[0])]
    require_headers([name for name, _ in kept])
    return tuple(kept)


def _headers(headers: Iterable[tuple[str, HeaderValue]]) -> Headers:
    pairs: list[tuple[str, bytes | None]] = []
    for name, value in _pairs(headers):
        pair = _header(name, value)
        if _RESERVED.fullmatch(name):
            msg = f"header {name!r} belongs to the envelope; set the event's own field instead"
            raise InvalidEvent(msg)
        if name.lower().startswith("ce_"):
            _require_attribute(name, value)
        pairs.append(pair)
    require_headers([name for name, _ in pairs])
    return tuple(pairs)


def _header(name: str, value: HeaderValue) -> tuple[str, bytes | None]:
    """Return a header as a record holds it; Kafka's client would end its name at a NUL."""
    if not _text("header", "name", name):
        msg = "header name must not be empty"
        raise InvalidEvent(msg)
    if "\0" in name:
        msg = f"header name {name[:80]!r} must not have a NUL"
        raise InvalidEvent(msg)
    match value:
        case None | bytes():
            return name, value
        case str():
            return name, _text("header", repr(name), value).encode()
        case _:
            msg = f"header {name!r} must be bytes, str or None, not {type(value).__name__}"
            raise InvalidEvent(msg)


def _require_attribute(name: str, value: object) -> None:
    """Check an extension attribute of CloudEvents, such as `ce_sequence`: a name and a text."""
    if not _EXTENSION.fullmatch(name):
        msg = (
            f"header {name[:80]!r} is no attribute of CloudEvents: ce_ and at most 100 lower-case "
            "letters and digits"
        )
        raise InvalidEvent(msg)
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = None
    if not value:
        msg = f"header {name!r} is an attribute of CloudEvents, so it must be a text"
        raise InvalidEvent(msg)


def _pairs(headers: Iterable[tuple[str, HeaderValue]]) -> list[tuple[str, HeaderValue]]:
    msg = 'event headers must be (name, value) pairs, such as [("tenant", "a")]'
    # These would unpack too, if their items have two characters.
    if isinstance(headers, Mapping | str | bytes):
        raise InvalidEvent(msg)
    try:
        return [(name, value) for name, value in headers]
    except (TypeError, ValueError) as error:
        raise InvalidEvent(msg) from error
