"""Decode what a replication slot sends, as far as an auditor compares it."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from dovecote.audit.rules.ids import digest
from dovecote.audit.rules.matching import LOG, Read

_EPOCH = 946_684_800_000
"""Postgres counts from 2000: its beginning in milliseconds since 1970."""
_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_INT, _COUNT, _OID = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">I")
_ONE = struct.Struct(">Bq36siiii")
_MANY = struct.Struct(">q36siiiii")
_MOST_KINDS = 1_000
_TABLES = frozenset({"events", *(f"events_{number}" for number in range(4))})

_Payload = tuple[bytes, bytes, bytes | None, bytes | None]
"""Id in text, kind, key, value."""


@dataclass(slots=True)
class Place:
    """How far a log is read, and how many events that were."""

    at: int = 0
    """All transactions that committed before this place are read; 0: nothing was read."""
    half: int = 0
    """The commit's place of a transaction of which only the first events are read; 0: none."""
    taken: int = 0
    """How many events of `half` are read."""
    events: int = 0
    """Events that were read since the state began: they are numbered, in the order of commits."""
    begun: int = 0
    """Where the reading began, or began anew after a gap."""
    end: int = 0
    """The commit's place of the newest event: a relay beyond it has passed all that was read."""


class Retained(NamedTuple):
    """A slot as the server describes it."""

    confirmed: int | None
    retained: int | None
    """Bytes of the log that the server keeps for it."""
    process: int | None
    """The process that reads it."""
    invalid: str | None
    """Why the server took it away; None: it is whole."""


def why_anew(place: Place, slot: Retained | None, end: int, most: int) -> str | None:
    """
    Return why the reading cannot go on where it stands; None: it can.

    `end` is the end of the log, and `most` how many bytes of it the slot may hold back.
    """
    if slot is None:
        return "its slot is gone"
    if slot.invalid is not None or slot.confirmed is None or slot.retained is None:
        return _taken_away(slot.invalid)
    if place.at > end:
        return "the server was put back to an earlier state"
    if slot.confirmed > place.at:
        return "its slot was moved or made anew by somebody else"
    if slot.retained > most:
        return f"its slot held back {slot.retained:,} bytes of the log, more than {most:,}"
    return None


def _taken_away(reason: str | None) -> str:
    """Return that the server took a slot away, and what keeps it from doing so again."""
    said = f"the server took its slot away ({reason or 'the log is gone'})"
    match reason:
        case "wal_removed":
            return f"{said}: let the auditor run all the time, or raise max_slot_wal_keep_size"
        case "idle_timeout":
            return (
                f"{said}: let the auditor run all the time, or more often, or raise "
                "idle_replication_slot_timeout"
            )
        case _:
            return said


class LogDecoder:
    """Takes messages in the order in which they came, and gives events as rows."""

    def __init__(self, schema: str, prefix: str, place: Place) -> None:
        self.place = place
        self._schema = schema
        self._prefix = prefix.encode() + b"\0"
        self._columns: dict[int, list[str]] = {}
        self._kinds: dict[bytes, tuple[str, str]] = {}
        self._commit = self._index = self._skip = self._time = 0
        self.is_within = False

    def take(self, data: bytes) -> list[Read]:
        """
        Return the events of one message that were not read yet.

        Raises:
            ValueError: this version does not understand it.
        """
        letter = data[:1]
        try:
            if letter == b"M":
                return self._rows(self._message(data))
            if letter == b"I":
                return self._rows(self._insert(data))
            if letter == b"B":
                self._begin(data)
            elif letter == b"C":
                self._end(data)
            elif letter == b"R":
                self._relation(data)
        except (struct.error, UnicodeDecodeError, KeyError, TypeError) as error:
            msg = f"a message {data[:60]!r} is not understood: {error}"
            raise ValueError(msg) from error
        return []

    def caught_up(self, end: int) -> None:
        """Note that all transactions that committed before `end` have come."""
        if not self.is_within and end > self.place.at:
            self.place.at, self.place.half, self.place.taken = end, 0, 0

    def _begin(self, data: bytes) -> None:
        self._commit, committed, _ = _BEGIN.unpack_from(data, 1)
        self._time = committed // 1000 + _EPOCH
        place = self.place
        self.is_within, self._index = True, 0
        self._skip = place.taken if self._commit == place.half else 0
        if self._commit < place.at:
            self._skip = 1 << 62

    def _end(self, data: bytes) -> None:
        _, _, end, _ = _COMMIT.unpack_from(data, 1)
        self.is_within = False
        self.caught_up(end)

    def _rows(self, found: Iterable[_Payload]) -> list[Read]:
        rows: list[Read] = []
        place = self.place
        for id_, kind, key, value in found:
            self._index += 1
            if self._index <= self._skip:
                continue
            topic, source = self._kind(kind)
            place.events += 1
            rows.append(
                (
                    LOG + place.events,
                    self._time,
                    topic,
                    source,
                    UUID(id_.decode("ascii")).bytes,
                    digest(key, value),
                )
            )
        if rows:
            place.half, place.taken, place.end = self._commit, self._index, self._commit
        return rows

    def _kind(self, packed: bytes) -> tuple[str, str]:
        known = self._kinds.get(packed)
        if known is None:
            topic, _, source, *_ = _list(packed)
            if topic is None or source is None:
                msg = "an event without a topic or a source"
                raise ValueError(msg)
            known = (topic.decode(), source.decode())
            if len(self._kinds) < _MOST_KINDS:
                self._kinds[packed] = known
        return known

    def _message(self, data: bytes) -> Iterator[_Payload]:
        # A letter, flags, place, prefix, NUL, length and content.
        if data[1] != 1 or not data.startswith(self._prefix, 10):
            return iter(())
        return _payloads(data[10 + len(self._prefix) + _INT.size :])

    def _relation(self, data: bytes) -> None:
        (oid,) = _OID.unpack_from(data, 1)
        schema, at = _text(data, 5)
        name, at = _text(data, at)
        self._columns.pop(oid, None)
        if schema != self._schema or name not in _TABLES:
            return
        (count,) = _COUNT.unpack_from(data, at + 1)
        at += 3
        names = []
        for _ in range(count):
            column, at = _text(data, at + 1)
            names.append(column)
            at += 8
        self._columns[oid] = names

    def _insert(self, data: bytes) -> Iterator[_Payload]:
        (oid,) = _OID.unpack_from(data, 1)
        names = self._columns.get(oid)
        if names is None:
            return
        row = dict(zip(names, _cells(data, 6), strict=True))
        kind = _packed(row["topic"], b"", row["source"])
        yield str(UUID(bytes=row["id"])).encode(), kind, row["key"], row["value"]


def _payloads(data: bytes) -> Iterator[_Payload]:
    """Yield the events of a message: one (format 1), or those of a whole call (format 2)."""
    if data[:1] == b"\1":
        _, _, id_, kind, subject, key, value = _ONE.unpack_from(data, 0)
        yield _parts(data, _ONE.size, id_, (kind, subject, key, value))[0]
    elif data[:1] == b"\2":
        (count,) = _INT.unpack_from(data, 1)
        at = 5 + count * _MANY.size
        for _, id_, kind, subject, key, value, headers in _MANY.iter_unpack(data[5:at]):
            found, at = _parts(data, at, id_, (kind, subject, key, value))
            yield found
            at += headers
        if at != len(data):
            msg = f"a call of {count} events has {len(data)} bytes, and they have {at}"
            raise ValueError(msg)
    else:
        msg = f"an event of format {data[:1]!r}: upgrade the auditor"
        raise ValueError(msg)


def _parts(
    data: bytes, at: int, id_: bytes, sizes: tuple[int, int, int, int]
) -> tuple[_Payload, int]:
    parts: list[bytes | None] = []
    for size in sizes:
        parts.append(None if size < 0 else data[at : at + size])
        at += max(0, size)
    if at > len(data):
        msg = f"an event of {at} bytes in {len(data)}"
        raise ValueError(msg)
    kind, _, key, value = parts
    return (id_, kind or b"", key, value), at


def _list(data: bytes) -> list[bytes | None]:
    """Return the elements of a list as array_send() writes it."""
    _, _, _, count, _ = struct.unpack_from(">iiIii", data, 0)
    at, found = 20, list[bytes | None]()
    for _ in range(count):
        (size,) = _INT.unpack_from(data, at)
        at += 4
        found.append(None if size < 0 else data[at : at + size])
        at += max(0, size)
    return found


def _packed(*values: bytes | None) -> bytes:
    head = struct.pack(">iiIii", 1, 0, 25, len(values), 1)
    return head + b"".join(
        _INT.pack(-1) if each is None else _INT.pack(len(each)) + each for each in values
    )


def _text(data: bytes, start: int) -> tuple[str, int]:
    end = data.index(b"\0", start)
    return data[start:end].decode(), end + 1


def _cells(data: bytes, start: int) -> list[bytes | None]:
    """Return the columns of a row, all of them binary."""
    # The letter N comes before the number of columns.
    (count,) = _COUNT.unpack_from(data, start)
    at, found = start + 2, list[bytes | None]()
    for _ in range(count):
        letter, at = data[at : at + 1], at + 1
        if letter == b"n":
            found.append(None)
            continue
        if letter != b"b":
            msg = f"a column of kind {letter!r}"
            raise ValueError(msg)
        (size,) = _INT.unpack_from(data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found
