"""
Decode a replication slot's stream: transactions in commit order, and our events in them.

The server sends committed transactions only, one after the other (`streaming 'off'`). An event is
a transactional message with the install's prefix, or a row inserted into one of the outbox's
tables. Both count alike, in the order in which the transaction wrote them.
"""

import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from relay.decoding.own import Own
from relay.decoding.payload import (
    MANY,
    Kinds,
    count_events,
    decode_event,
    decode_events,
    read_list,
)
from relay.rules.places.lsn import log_number, log_place
from relay.rules.places.progress import LogPosition, Newest
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import POSITION, Row
from relay.rules.sharding import Shard

# An XLogData message begins with its letter, the start of its data, the end of the log and the
# server's clock.
_DATA_SIZE = 25
_KEEPALIVE = struct.Struct(">QqB")
_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_LENGTH = struct.Struct(">i")
_COUNT = struct.Struct(">h")
_OID = struct.Struct(">I")
_INT8 = struct.Struct(">q")

_TRANSACTIONAL = 1
# The letter is followed by flags and position, then by prefix, NUL, length and content.
_FLAGS = _DATA_SIZE + 1
_PREFIX = _FLAGS + 1 + 8

# After every possible position.
NOWHERE = 1 << 63
_ALL = 1 << 62

_COLUMNS = (
    "time", "topic", "key", "value", "type", "source", "subject", "content_type",
    "header_names", "header_values",
)  # fmt: skip


class Keepalive(NamedTuple):
    """The message that the server sends when it has nothing else to send."""

    end: int
    """Everything before this position has been sent."""
    wants_reply: bool


def read_keepalive(data: bytes) -> Keepalive:
    """Return the keepalive that `data` (which begins with `k`) holds."""
    end, _, wants_reply = _KEEPALIVE.unpack_from(data, 1)
    return Keepalive(end, bool(wants_reply))


def read_begin(data: bytes) -> Newest | None:
    """Return the transaction that a message begins and its commit's place; None if none."""
    if data[_DATA_SIZE : _DATA_SIZE + 1] != b"B":
        return None
    lsn, committed, xid = _BEGIN.unpack_from(data, _DATA_SIZE + 1)
    return Newest(lsn, f"{xid}@{committed}")


class Decoder:
    """
    Turns messages into rows, and knows the place after the last one taken.

    Events of shards other than `shard` count too, so that a place means the same to all shards.
    Transactions that commit at `end` or after it are not taken.
    """

    def __init__(
        self,
        prefix: str,
        tables: Collection[tuple[str, str]],
        since: LogPosition,
        *,
        shard: Shard | None = None,
        end: int = NOWHERE,
    ) -> None:
        self._since = self._at = since
        self._own = None if shard is None or shard.of == 1 else Own(shard)
        self._end = end
        self._prefix = prefix.encode() + b"\0"
        self._content = _PREFIX + len(self._prefix) + _LENGTH.size
        self._tables = tables
        self._kinds: Kinds = {}
        self._columns: dict[int, list[str]] = {}
        self._commit_lsn = 0
        self._index = self._skip = 0
        self.xid = 0
        """The low half of the id of the latest transaction."""
        self.in_transaction = False
        self._committed = 0
        self._whole: Newest | None = None
        self.rows_of: set[int] | None = None
        """Gathers the transactions whose rows have come; None: nobody asks."""

    @property
    def position(self) -> LogPosition:
        """The place after the last event taken."""
        if self._index <= self._skip:
            return self._at
        # Made on demand, not for each event.
        return LogPosition(self._commit_lsn, self._index, self._at.seen, self._at.seen_to)

    @property
    def newest(self) -> Newest | None:
        """
        The newest transaction up to `position`, in the form of `read_begin`.

        One that has only begun, or is not taken, may never be published. A stream that began there
        would leave out what lies between.
        """
        if self._index <= self._skip:
            return self._whole
        return Newest(self._commit_lsn, f"{self.xid}@{self._committed}")

    def after(self, row: Row) -> LogPosition:
        """Return the place after `row`, which must be one of the rows taken last."""
        return LogPosition(*log_place(row[POSITION]), self._at.seen, self._at.seen_to)

    def take(self, data: bytes) -> Sequence[Row]:
        """
        Return those events of a message that are not published yet.

        Raises:
            ValueError: the message cannot be understood, or the log has lost events.
        """
        letter = data[_DATA_SIZE : _DATA_SIZE + 1]
        if letter == b"M":
            return self._message(data)
        if letter == b"I":
            return self._insert(data)
        if letter == b"B":
            self._begin(data)
        elif letter == b"C":
            self._commit(data)
        elif letter == b"R":
            self._relation(data)
        elif letter not in {b"O", b"Y", b"T", b"U", b"D"}:
            msg = f"a message {letter!r} in the replication stream"
            raise ValueError(msg)
        return ()

    def caught_up(self, end: int) -> None:
        """Move on to `end`: all transactions that committed before it have been taken."""
        if not self.in_transaction and end > self.position.lsn:
            self._move(end)

    def _begin(self, data: bytes) -> None:
        self._commit_lsn, self._committed, self.xid = _BEGIN.unpack_from(data, _DATA_SIZE + 1)
        self.in_transaction, self._index = True, 0
        since = self._since
        # The server sends it again after a restart; all of it was published, or its first events
        # were.
        self._skip = since.index if self._commit_lsn == since.lsn else 0
        if self._commit_lsn < since.lsn:
            self._skip = _ALL
        if self._commit_lsn >= self._end:
            self._skip = _ALL

    def _commit(self, data: bytes) -> None:
        _, _, end, _ = _COMMIT.unpack_from(data, _DATA_SIZE + 1)
        self.in_transaction = False
        if self._commit_lsn == self._since.lsn and self._index < self._skip < _ALL:
            msg = (
                f"a transaction of {self._index} events, of which {self._skip} are published: "
                "this is not the log that they came from"
            )
            raise ValueError(msg)
        if self._commit_lsn < self._end:
            self._whole = Newest(self._commit_lsn, f"{self.xid}@{self._committed}")
        self._index = self._skip = 0
        if end > self._at.lsn:
            self._move(end)

    def _move(self, lsn: int) -> None:
        at, lsn = self._at, min(lsn, self._end)
        seen = at.seen if lsn < at.seen_to else None
        self._at = LogPosition(lsn, 0, seen, at.seen_to if seen else 0)

    def _message(self, data: bytes) -> Sequence[Row]:
        # Other messages are not transactional, or not ours: any role may write messages.
        if data[_FLAGS] != _TRANSACTIONAL or not data.startswith(self._prefix, _PREFIX):
            return ()
        content, own = self._content, self._own
        index = self._index
        self._index += count_events(data, content)
        if self._index <= self._skip:
            return ()
        first = log_number(self._commit_lsn, index + 1)
        if data[content] == MANY:
            is_own = None if own is None else own.of_event
            rows = decode_events(data, content, first, self._kinds, is_own=is_own)
            skip = log_number(self._commit_lsn, self._skip)
            return rows if first > skip else [row for row in rows if row[POSITION] > skip]
        if own is not None and not own.of_message(data, content):
            return ()
        return (decode_event(data, content, first, self._kinds),)

    def _relation(self, data: bytes) -> None:
        (oid,) = _OID.unpack_from(data, _DATA_SIZE + 1)
        schema, place = _text(data, _DATA_SIZE + 5)
        name, place = _text(data, place)
        self._columns.pop(oid, None)
        if (schema, name) not in self._tables:
            return
        (count,) = _COUNT.unpack_from(data, place + 1)
        place += 3
        names = []
        for _ in range(count):
            column, place = _text(data, place + 1)
            names.append(column)
            place += 8
        self._columns[oid] = names

    def _insert(self, data: bytes) -> Sequence[Row]:
        (oid,) = _OID.unpack_from(data, _DATA_SIZE + 1)
        if (names := self._columns.get(oid)) is None:
            return ()
        self._index += 1
        row = dict(zip(names, _tuple(data, _DATA_SIZE + 6), strict=True))
        if self.rows_of is not None:
            self._note(self.rows_of, int.from_bytes(row["xid"] or b""))
        if self._index <= self._skip or self._was_seen(row["xid"]):
            return ()
        id_ = str(UUID(bytes=row["id"]))
        if self._own is not None and not self._own.of_row(row["key"], id_):
            return ()
        return (self._row(row, id_),)

    def _note(self, rows_of: set[int], xid: int) -> None:
        # A restored row carries a transaction id of another server.
        if xid & 0xFFFFFFFF == self.xid:
            rows_of.add(xid)

    def _was_seen(self, xid: bytes | None) -> bool:
        seen: Snapshot | None = self._at.seen
        return seen is not None and xid is not None and seen.sees(int.from_bytes(xid))

    def _row(self, row: dict[str, bytes | None], id_: str) -> Row:
        time, topic, key, value, type_, source, subject, media, names, values = (
            row[column] for column in _COLUMNS
        )
        return (
            log_number(self._commit_lsn, self._index),
            id_,
            _INT8.unpack(time or b"")[0],
            (topic or b"").decode(),
            key,
            value,
            _string(type_),
            _string(source),
            _string(subject),
            _string(media),
            None if names is None else [(name or b"").decode() for name in _elements(names)],
            None if values is None else _elements(values),
        )


def _elements(data: bytes) -> list[bytes | None]:
    # An empty list has no dimensions, and nothing after its header.
    return [] if data[:4] == b"\0\0\0\0" else read_list(data, 0)[0]


def _string(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _text(data: bytes, start: int) -> tuple[str, int]:
    end = data.index(b"\0", start)
    return data[start:end].decode(), end + 1


def _tuple(data: bytes, start: int) -> list[bytes | None]:
    """Return the columns of a row. All are binary and none is left out, since we only insert."""
    (count,) = _COUNT.unpack_from(data, start)
    place = start + 2
    found: list[bytes | None] = []
    for _ in range(count):
        letter, place = data[place : place + 1], place + 1
        if letter == b"n":
            found.append(None)
            continue
        if letter != b"b":
            msg = f"a column of kind {letter!r}"
            raise ValueError(msg)
        (length,) = _LENGTH.unpack_from(data, place)
        place += 4
        found.append(data[place : place + length])
        place += length
    return found
