"""Read an event from what `append()` writes to the write-ahead log (format 1, outbox/sql)."""

import struct
from typing import TypeAlias

from relay.capture.batch import Row

FORMAT = 1

Kind: TypeAlias = tuple[str, str, str, str | None]
"""topic, type, source, content type."""

Kinds: TypeAlias = dict[bytes, Kind]
"""Kinds read before, by their bytes: most events are of few kinds."""

_START = struct.Struct(">Bi")
_ID, _ID_SIZE = struct.Struct(">36sq"), 44
# As array_send() writes a list: dimensions, whether it has NULLs, element type, length, bound.
_LIST = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
# What is remembered is bounded: a source may be different in every event.
_MOST_KINDS = 1000


def decode_event(payload: bytes, position: int, kinds: Kinds) -> Row:
    """
    Return the event that `payload` holds, as a row at `position`.

    Raises:
        ValueError: it holds none that this version understands.
    """
    try:
        version, length = _START.unpack_from(payload)
        if version != FORMAT:
            msg = f"an event of format {version}, this version knows {FORMAT}: upgrade dovecote"
            raise ValueError(msg)
        end = _START.size + length
        packed = payload[_START.size : end]
        topic, type_, source, content_type = kinds.get(packed) or _kind(packed, kinds)
        id_, time = _ID.unpack_from(payload, end)
        (subject, key, value), end = read_list(payload, end + _ID_SIZE)
        names, values = None, None
        if end < len(payload):
            headers, end = read_list(payload, end)
            names, values = [name.decode() for name in headers[::2] if name], headers[1::2]
    except (struct.error, UnicodeDecodeError, TypeError) as error:
        msg = f"not an event: {payload[:200]!r}"
        raise ValueError(msg) from error
    return (
        position,
        id_.decode("ascii"),
        time,
        topic,
        key,
        value,
        type_,
        source,
        None if subject is None else subject.decode(),
        content_type,
        names,
        values,
    )


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
