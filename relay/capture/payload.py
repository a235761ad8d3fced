"""Read an event from what `append()` writes to the write-ahead log (format 1, outbox/sql)."""

import struct
from typing import TypeAlias

from relay.capture.batch import Row

FORMAT = 1
_FORMAT_BYTE = bytes([FORMAT])

Kind: TypeAlias = tuple[str, str, str, str | None]
"""topic, type, source, content type."""

Kinds: TypeAlias = dict[bytes, Kind]
"""Kinds read before, by their bytes: most events are of few kinds."""

# Format, time, id, lengths of kind, subject, key and value; lists and contents follow.
_HEAD = struct.Struct(">Bq36siiii")
_HEAD_SIZE = _HEAD.size
# As array_send() writes a list: dimensions, whether it has NULLs, element type, length, bound.
_LIST = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
# What is remembered is bounded: a source may be different in every event.
_MOST_KINDS = 1000


def decode_event(data: bytes, start: int, position: int, kinds: Kinds) -> Row:
    """
    Return the event that `data` holds from `start` on, as a row at `position`.

    Raises:
        ValueError: it holds none that this version understands.
    """
    if data[start : start + 1] != _FORMAT_BYTE:
        raise ValueError(_not_understood(data[start:]))
    subject = key = value = names = values = None
    try:
        _, time, id_, kind_size, subject_size, key_size, value_size = _HEAD.unpack_from(
            data, start
        )
        at = start + _HEAD.size
        end = at + kind_size
        topic, type_, source, content_type = kinds.get(data[at:end]) or _kind(data[at:end], kinds)
        if subject_size >= 0:
            at, end = end, end + subject_size
            subject = data[at:end].decode()
        if key_size >= 0:
            at, end = end, end + key_size
            key = data[at:end]
        if value_size >= 0:
            at, end = end, end + value_size
            value = data[at:end]
        if end < len(data):
            headers, end = read_list(data, end)
            names, values = [name.decode() for name in headers[::2] if name], headers[1::2]
    except (struct.error, UnicodeDecodeError, TypeError) as error:
        raise ValueError(_not_understood(data[start:])) from error
    if end != len(data):
        raise ValueError(_not_understood(data[start:]))
    return (
        position,
        id_.decode("ascii"),
        time,
        topic,
        key,
        value,
        type_,
        source,
        subject,
        content_type,
        names,
        values,
    )


def _not_understood(payload: bytes) -> str:
    if payload and payload[0] != FORMAT:
        return f"an event of format {payload[0]}, this version knows {FORMAT}: upgrade dovecote"
    return f"not an event: {payload[:200]!r}"


def _kind(packed: bytes, kinds: Kinds) -> Kind:
    (topic, type_, source, media), _ = read_list(packed, 0)
    if topic is None or type_ is None or source is None:
        msg = "an event without a topic, a type or a source"
        raise ValueError(msg)
    text = None if media is None else media.decode()
    kind = (topic.decode(), type_.decode(), source.decode(), text)
    if len(kinds) < _MOST_KINDS:
        kinds[packed] = kind
    return kind


def read_list(data: bytes, start: int) -> tuple[list[bytes | None], int]:
    """Return the elements of a list as array_send() writes it, and where it ends."""
    dimensions, _, _, count, _ = _LIST.unpack_from(data, start)
    if dimensions != 1:
        msg = f"a list of {dimensions} dimensions"
        raise ValueError(msg)
    place = start + _LIST.size
    unpack, found = _LENGTH.unpack_from, list[bytes | None]()
    for _ in range(count):
        (length,) = unpack(data, place)
        place += 4
        if length < 0:
            found.append(None)
            continue
        found.append(data[place : place + length])
        place += length
    if place > len(data):
        msg = f"a list of {place - start} bytes in {len(data) - start}"
        raise ValueError(msg)
    return found, place
