"""Decode a Kafka record into the event that filters and handlers see."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Literal, TypeAlias

from dedup.rules.json_text import loads
from outbox import envelope
from outbox.envelope import Record
from outbox.errors import DovecoteError
from outbox.event import Event

Format: TypeAlias = Literal["json", "raw"]
"""Format of the values: JSON, or bytes that only the handler understands."""


class Undecodable(DovecoteError):
    """The value of a record is not in the format that the settings name."""


class Misfit(Undecodable):
    """The value of a record is not what the handler's annotation says."""


def as_json(record: Record) -> Event:
    """
    Return the event with its JSON value as Python objects, and its key as text if it is text.

    A tombstone stays None.

    Raises:
        Undecodable: the value is not JSON (RFC 8259: no NaN, no lone surrogates).
        InvalidEvent: a header that the envelope owns cannot be read.
    """
    if record.value is None:
        return as_raw(record)
    try:
        value = loads(record.value)
    except ValueError as error:
        where = f"{record.topic}/{record.partition}/{record.offset}"
        msg = f"the value of {where} is not JSON: {error}{_otherwise(record)}"
        raise Undecodable(msg) from error
    return with_value(record, value)


def _otherwise(record: Record) -> str:
    """Return what a record says that it is instead of JSON, and what to do about it."""
    found = dict(record.headers).get(envelope.CONTENT_TYPE)
    said = b"" if found is None else found[:100]
    if not said or b"json" in said.lower():
        return ""
    kind = said.decode("utf-8", "backslashreplace")
    return f'; its content type is {kind}: a handler that wants its bytes sets `value = "raw"`'


def as_raw(record: Record) -> Event:
    """
    Return the event with its value unchanged, and its key as text if it is text.

    Raises:
        InvalidEvent: a header that the envelope owns cannot be read.
    """
    return with_value(record, record.value)


def with_value(record: Record, value: object) -> Event:
    """
    Return the event with an already decoded value, and its key as text if it is text.

    Raises:
        InvalidEvent: a header that the envelope owns cannot be read.
    """
    key = None if record.key is None else _text(record.key)
    usual = envelope.usual_event(record, key=key, value=value)
    if usual is not None:
        return usual
    # A round that cannot be read makes the record fail here, not crash at the retry.
    if envelope.was_delivered(record):
        envelope.delivery(record)
    return envelope.any_event(record, key=key, value=value)


def _text(key: bytes) -> bytes | str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


DECODERS: Mapping[Format, Callable[[Record], Event]] = MappingProxyType(
    {"json": as_json, "raw": as_raw}
)


def fingerprint(record: Record) -> bytes | None:
    """Return a hash of the value, for deduplication by content; None for a tombstone."""
    return None if record.value is None else blake2b(record.value, digest_size=16).digest()
