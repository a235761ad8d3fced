"""
Encode what is committed along with an offset: the topic's id, and what is completed beyond it.

A topic that was deleted and made anew has another id: an offset of the earlier one says nothing of
it. A broker takes 4,096 bytes (`offset.metadata.max.bytes`). The text holds alternating runs of
pending and completed offsets, beginning with pending ones at the committed offset. They are
written as lengths or as bits, whichever is shorter. Runs that do not fit are left out: their
records would be repeated.
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

LIMIT = 4096
"""A broker's default limit."""

_TOPIC = "dove1t"
_ID_CHARACTERS = 22
_LENGTHS = "dove1r"
_BITS = "dove1b"

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""First offset and the one after the last, in order, and apart from each other."""


def encode(
    position: int, completed: Ranges, limit: int = LIMIT, *, topic_id: str | None = None
) -> tuple[str, bool]:
    """
    Return the text for `completed` ranges beyond `position`, and whether all are in it.

    If `limit` is too short for any of them, the text has none.
    """
    head = "" if topic_id is None else f"{_TOPIC}{topic_id}"
    if len(head) > limit:
        head = ""
    text, whole = _encoded(position, completed, limit - len(head))
    return head + text, whole


def _encoded(position: int, completed: Ranges, limit: int) -> tuple[str, bool]:
    if not completed:
        return "", True
    if limit <= len(_LENGTHS):
        return "", False
    room = (limit - len(_LENGTHS)) // 4 * 3
    bits = (completed[-1][1] - position + 7) // 8
    lengths = _varints(_runs(position, completed), room)
    whole = lengths[1]
    if bits <= room and (bits < len(lengths[0]) or not whole):
        return _text(_BITS, _bitset(position, completed)), True
    return _text(_LENGTHS, lengths[0]), whole


def decode(position: int, metadata: str | None) -> list[tuple[int, int]]:
    """Return the completed ranges beyond `position`; none if the text is not ours."""
    rest = (metadata or "")[len(_TOPIC) + _ID_CHARACTERS :]
    said = rest if topic_of(metadata) is not None else metadata or ""
    form, text = said[: len(_LENGTHS)], said[len(_LENGTHS) :]
    if form not in {_LENGTHS, _BITS}:
        return []
    try:
        data = b64decode(text, validate=True)
        return list(_from_bits(position, data) if form == _BITS else _from_runs(position, data))
    except (NotBase64, IndexError):
        return []


def topic_of(metadata: str | None) -> str | None:
    """Return the id of the topic that the offset belongs to; None: the text does not say."""
    if metadata is None or not metadata.startswith(_TOPIC):
        return None
    return metadata[len(_TOPIC) : len(_TOPIC) + _ID_CHARACTERS]


def _text(form: str, data: bytes) -> str:
    return form + b64encode(data).decode()


def _runs(position: int, completed: Ranges) -> Iterator[tuple[int, int]]:
    at = position
    for first, end in completed:
        yield first - at, end - first
        at = end


def _varints(runs: Iterable[tuple[int, int]], room: int) -> tuple[bytes, bool]:
    data = bytearray()
    for pending, completed in runs:
        pair = _varint(pending) + _varint(completed)
        if len(data) + len(pair) > room:
            return bytes(data), False
        data += pair
    return bytes(data), True


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:  # noqa: PLR2004  # seven bits a byte, the eighth says that more follow
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _from_runs(position: int, data: bytes) -> Iterator[tuple[int, int]]:
    numbers = iter(_numbers(data))
    at = position
    for pending, completed in zip(numbers, numbers, strict=False):
        first = at + pending
        at = first + completed
        yield first, at


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004  # the last byte of a number
            yield number
            number = shift = 0


def _bitset(position: int, completed: Ranges) -> bytes:
    bits = 0
    for first, end in completed:
        bits |= ((1 << (end - first)) - 1) << (first - position)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def _from_bits(position: int, data: bytes) -> Iterator[tuple[int, int]]:
    first: int | None = None
    number = -1
    for number, bit in enumerate(_each_bit(data)):
        if bit and first is None:
            first = number
        elif not bit and first is not None:
            yield position + first, position + number
            first = None
    if first is not None:
        yield position + first, position + number + 1


def _each_bit(data: bytes) -> Iterator[int]:
    for byte in data:
        for bit in range(8):
            yield byte >> bit & 1
