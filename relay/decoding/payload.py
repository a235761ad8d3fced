"""Read events from what writers put into the write-ahead log (formats 1 and 2)."""

import struct
from collections.abc import Callable
from typing import TypeAlias

from relay.rules.row import Row

ONE, MANY = 1, 2
"""Formats: one event, written by `append()`; the events of one call of `append_many()`."""

Kind: TypeAlias = tuple[str, str, str, str | None]
"""topic, type, source, content type."""

Kinds: TypeAlias = dict[bytes, Kind]
"""Kinds decoded before, by their bytes: most events share a few kinds."""

IsOwn: TypeAlias = Callable[[bytes | None, bytes], bool]
"""Returns, for a key and an id, whether the event is wanted."""

# Format, time, id, lengths of kind, subject, key and value; lists and contents follow.
_HEAD = struct.Struct(">Bq36siiii")
# After format and number come these, per event: time, id, lengths of kind, subject, key, value,
# headers.
_HEADS = struct.Struct(">q36siiiii")
_NUMBER = struct.Struct(">i")
_HEADS_AT = 1 + _NUMBER.size
# The header of a list as array_send() writes it: dimensions, whether it has NULLs, element type,
# length, bound.
_LIST = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
# The cache is bounded, because each event may have a source of its own.
_MOST_KINDS = 1000
_LONGEST_KIND = 1_000


def decode_event(data: bytes, start: int, position: int, kinds: Kinds) -> Row:
    """
    Return the event that begins at `start` in `data`, as a row at `position`.

    Raises:
        ValueError: this version understands no event there.
    """
    if data[start : start + 1] != b"\1":
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
            names, values, end = _headers(data, end)
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


def count_events(data: bytes, start: int) -> int:
    """
    Return how many events `data` holds from `start` on.

    Raises:
        ValueError: this version does not understand what is there.
    """
    form = data[start : start + 1]
    if form == b"\2" and len(data) >= start + _HEADS_AT:
        return int(_NUMBER.unpack_from(data, start + 1)[0])
    if form == b"\1":
        return 1
    raise ValueError(_not_understood(data[start:]))


def decode_events(
    data: bytes, start: int, position: int, kinds: Kinds, *, is_own: IsOwn | None = None
) -> list[Row]:
    """
    Return the events of one call, which begin at `start` in `data`; the first is at `position`.

    If `is_own` is given, only the events that it accepts.

    Raises:
        ValueError: something else is there.
    """
    rows: list[Row] = []
    count = count_events(data, start)
    heads = start + _HEADS_AT
    at = heads + max(0, count) * _HEADS.size
    known, found = kinds.get, position
    try:
        for time, id_, kind_size, subject_size, key_size, value_size, size in _HEADS.iter_unpack(
            data[heads:at]
        ):
            subject = key = value = names = values = None
            begin, at = at, at + kind_size
            kind = data[begin:at]
            if subject_size >= 0:
                begin, at = at, at + subject_size
                subject = data[begin:at].decode()
            if key_size >= 0:
                begin, at = at, at + key_size
                key = data[begin:at]
            if value_size >= 0:
                begin, at = at, at + value_size
                value = data[begin:at]
            if size:
                names, values, at = _headers(data, at)
            if is_own is None or is_own(key, id_):
                topic, type_, source, content_type = known(kind) or _kind(kind, kinds)
                rows.append((
                    found, id_.decode("ascii"), time, topic, key, value, type_, source,
                    subject, content_type, names, values,
                ))  # fmt: skip
            found += 1
    except (struct.error, ValueError, TypeError) as error:
        raise ValueError(_not_understood(data[start:])) from error
    if at != len(data) or found - position != count:
        raise ValueError(_not_understood(data[start:]))
    return rows


def _not_understood(payload: bytes) -> str:
    if payload and payload[0] not in {ONE, MANY}:
        known = f"this version knows {ONE} and {MANY}"
        return f"an event of format {payload[0]}, {known}: upgrade dovecote"
    return f"not an event: {payload[:200]!r}"


def _headers(data: bytes, start: int) -> tuple[list[str], list[bytes | None], int]:
    """Return the names, the values and the end of the list that holds both."""
    headers, end = read_list(data, start)
    return [name.decode() for name in headers[::2] if name], headers[1::2], end


def _kind(packed: bytes, kinds: Kinds) -> Kind:
    (topic, type_, source, media), _ = read_list(packed, 0)
    if topic is None or type_ is None or source is None:
        msg = "an event without a topic, a type or a source"
        raise ValueError(msg)
    text = None if media is None else media.decode()
    kind = (topic.decode(), type_.decode(), source.decode(), text)
    if len(kinds) < _MOST_KINDS and len(packed) <= _LONGEST_KIND:
        kinds[packed] = kind
    return kind


def read_list(data: bytes, start: int) -> tuple[list[bytes | None], int]:
    """Return the elements of a list as array_send() writes it, and the list's end."""
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
