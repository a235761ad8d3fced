"""Committed events come out once, in order, wherever the stream begins."""

import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.decoding.pgoutput import Decoder, read_keepalive
from relay.rules.places.progress import LogPosition, Newest
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import POSITION, VALUE, Row
from relay.rules.sharding import divided, shard_of
from tests.support.rows import numbers as values
from tests.unit.relay.decoding.messages import array, packed, payload, text

PREFIX = "dovecote/secret"
TABLES = {("outbox", "events"), ("outbox", "events_0")}
OID = 16400


def data(body: bytes) -> bytes:
    return b"w" + struct.pack(">QQq", 1, 2, 3) + body


def begin(commit: int) -> bytes:
    return data(b"B" + struct.pack(">QqI", commit, 0, 7))


def commit(at: int, end: int) -> bytes:
    return data(b"C" + struct.pack(">BQQq", 0, at, end, 0))


def message(content: bytes, *, flags: int = 1, prefix: str = PREFIX) -> bytes:
    head = struct.pack(">BQ", flags, 5) + prefix.encode() + b"\0"
    return data(b"M" + head + struct.pack(">i", len(content)) + content)


COLUMNS = (
    "position", "xid", "appended_at", "time", "id", "topic", "type", "source", "subject",
    "content_type", "key", "value", "header_names", "header_values",
)  # fmt: skip


def relation(schema: str = "outbox", name: str = "events", oid: int = OID) -> bytes:
    columns = b"".join(b"\0" + column.encode() + b"\0" + b"\0" * 8 for column in COLUMNS)
    head = struct.pack(">I", oid) + schema.encode() + b"\0" + name.encode() + b"\0d"
    return data(b"R" + head + struct.pack(">h", len(COLUMNS)) + columns)


def insert(number: int, *, xid: int = 700, oid: int = OID, key: bytes = b"k") -> bytes:
    values = [
        struct.pack(">q", number), struct.pack(">Q", xid), struct.pack(">q", 0),
        struct.pack(">q", 42), UUID(int=number).bytes, b"t", b"T", b"/s", None,
        None, key, str(number).encode(), array(b"h"), array(None),
    ]  # fmt: skip
    packed = b"".join(b"n" if v is None else b"b" + struct.pack(">i", len(v)) + v for v in values)
    return data(b"I" + struct.pack(">I", oid) + b"N" + struct.pack(">h", len(values)) + packed)


def taken(decoder: Decoder, messages: list[bytes]) -> list[Row]:
    return [row for each in messages for row in decoder.take(each)]


Call: TypeAlias = Literal["rows", "messages", "packed"]


@dataclass(frozen=True)
class Transaction:
    """One committed transaction: its events by number, as each call wrote them."""

    at: int
    end: int
    calls: tuple[tuple[Call, tuple[int, ...]], ...]

    def numbers(self) -> list[int]:
        return [n for _, numbers in self.calls for n in numbers]

    def messages(self) -> list[bytes]:
        found = [each for how, numbers in self.calls for each in called(how, numbers)]
        return [begin(self.at), relation(), *found, commit(self.at, self.end)]


def called(how: Call, numbers: tuple[int, ...]) -> list[bytes]:
    """Return the server's messages for a call."""
    if how == "rows":
        return [insert(n, key=text(n)) for n in numbers]
    events = [payload(key=text(n), value=text(n)) for n in numbers]
    return [message(packed(*events))] if how == "packed" else [message(each) for each in events]


@st.composite
def logs(draw: st.DrawFn) -> list[Transaction]:
    number, lsn, found = 0, 100, []
    call = st.tuples(st.sampled_from(get_args(Call)), st.integers(1, 4))
    for calls in draw(st.lists(st.lists(call, max_size=4), max_size=8)):
        at = lsn + draw(st.integers(0, 50))
        lsn = at + draw(st.integers(1, 30))
        written = []
        for how, count in calls:
            written.append((how, tuple(range(number, number + count))))
            number += count
        found.append(Transaction(at, lsn, tuple(written)))
    return found


@given(log=logs(), stops=st.lists(st.integers(1, 9), max_size=20), resend_all=st.booleans())
def test_begun_again_at_any_place_every_event_comes_once_and_in_order(
    log: list[Transaction], stops: list[int], *, resend_all: bool
) -> None:
    place = LogPosition(100)
    found: list[int] = []
    for most in [*stops, 1 << 30]:
        # The server may begin earlier than asked, and never later.
        sent = [m for t in log if resend_all or t.at >= place.lsn for m in t.messages()]
        rows, behind = taken_up_to(most, Decoder(PREFIX, TABLES, place), sent)
        found += values(rows)
        assert behind.lsn >= place.lsn
        place = behind
    assert found == [n for transaction in log for n in transaction.numbers()]


def taken_up_to(
    most: int, decoder: Decoder, messages: list[bytes]
) -> tuple[list[Row], LogPosition]:
    """Return `count` rows, which may end within a message, and the place after them."""
    found: list[Row] = []
    for each in messages:
        rows = decoder.take(each)
        if len(found) + len(rows) > most:
            found += rows[: most - len(found)]
            return found, decoder.after(found[-1])
        found += rows
        if len(found) == most:
            break
    return found, decoder.position


@given(log=logs(), stops=st.lists(st.integers(1, 3), max_size=9), of=st.integers(2, 4))
def test_each_event_comes_to_one_shard_and_a_place_means_the_same_to_all(
    log: list[Transaction], stops: list[int], of: int
) -> None:
    messages = [m for t in log for m in t.messages()]
    for shard in divided("shop", of):
        place, found = LogPosition(100), list[int]()
        for most in [*stops, 1 << 30]:
            rows, behind = taken_up_to(most, Decoder(PREFIX, TABLES, place, shard=shard), messages)
            all_ = taken_since(place, messages)
            assert all(all_[row[POSITION], row[VALUE]] == row for row in rows)
            found += values(rows)
            place = behind
        numbers = [n for transaction in log for n in transaction.numbers()]
        assert found == [n for n in numbers if shard_of(text(n), "", of) == shard.number]


def taken_since(place: LogPosition, messages: list[bytes]) -> dict[tuple[object, ...], Row]:
    """Return what a decoder of all events takes after a place of any shard."""
    rows = taken(Decoder(PREFIX, TABLES, place), messages)
    return {(row[POSITION], row[VALUE]): row for row in rows}


@given(log=logs(), of=st.integers(2, 4))
def test_a_place_behind_a_message_is_the_same_to_all_shards(
    log: list[Transaction], of: int
) -> None:
    decoders = [Decoder(PREFIX, TABLES, LogPosition(100), shard=s) for s in divided("shop", of)]
    every = Decoder(PREFIX, TABLES, LogPosition(100))
    for each in (m for t in log for m in t.messages()):
        count = len(every.take(each))
        assert sum(len(decoder.take(each)) for decoder in decoders) == count
        assert {decoder.position for decoder in decoders} == {every.position}


@given(log=logs(), end=st.integers(100, 400))
def test_what_commits_at_an_end_or_behind_it_is_not_taken(
    log: list[Transaction], end: int
) -> None:
    decoder = Decoder(PREFIX, TABLES, LogPosition(100), end=end)
    rows = taken(decoder, [m for t in log for m in t.messages()])
    assert values(rows) == [n for t in log if t.at < end for n in t.numbers()]
    decoder.caught_up(1 << 40)
    assert decoder.position == LogPosition(end)


@given(log=logs(), end=st.integers(100, 400))
def test_the_newest_transaction_never_lies_behind_the_place(
    log: list[Transaction], end: int
) -> None:
    decoder = Decoder(PREFIX, TABLES, LogPosition(100), end=end)
    known: Newest | None = None
    for transaction in log:
        for each in transaction.messages():
            has_rows = bool(decoder.take(each))
            if has_rows or (not decoder.in_transaction and transaction.at < end):
                known = Newest(transaction.at, "7@0")
            assert decoder.newest == known
            assert known is None or known.at <= decoder.position.lsn


def test_a_message_counts_only_if_it_is_transactional_and_has_the_prefix() -> None:
    decoder = Decoder(PREFIX, TABLES, LogPosition(1))
    event = payload(value=b"1")
    rows = taken(
        decoder,
        [
            message(event, flags=0),
            begin(10),
            message(event, prefix="dovecote/secret2"),
            message(event, prefix="dovecote/"),
            message(b"", prefix="other"),
            message(event),
            commit(10, 20),
        ],
    )
    assert values(rows) == [1]
    assert decoder.position == LogPosition(20)


def test_only_rows_of_the_events_table_and_its_leaves_count() -> None:
    decoder = Decoder(PREFIX, TABLES, LogPosition(1))
    rows = taken(
        decoder,
        [
            *[begin(10), relation(name="orders"), insert(1), insert(2, oid=9)],
            *[relation(), insert(3), relation(name="events_0", oid=9), insert(4, oid=9)],
        ],
    )
    assert values(rows) == [3, 4]
    assert decoder.position == LogPosition(10, 2)
    assert rows[0][1:] == (
        str(UUID(int=3)), 42, "t", b"k", b"3", "T", "/s", None, None, ["h"], [None],
    )  # fmt: skip


def test_rows_that_were_published_from_the_table_are_left_out_up_to_a_place() -> None:
    place = LogPosition(1, 0, Snapshot(700, 710, (705,)), 50)
    decoder = Decoder(PREFIX, TABLES, place)
    first = [begin(10), relation(), insert(1, xid=701), insert(2, xid=705), commit(10, 20)]
    assert values(taken(decoder, first)) == [2]
    assert decoder.position.seen == place.seen
    assert values(taken(decoder, [begin(30), insert(3, xid=702), commit(30, 60)])) == []
    assert decoder.position == LogPosition(60)
    assert values(taken(decoder, [begin(70), insert(4, xid=703), commit(70, 80)])) == [4]


def test_a_keepalive_moves_on_between_transactions_only() -> None:
    said = read_keepalive(b"k" + struct.pack(">QqB", 500, 0, 1))
    assert (said.end, said.wants_reply) == (500, True)
    decoder = Decoder(PREFIX, TABLES, LogPosition(1))
    taken(decoder, [begin(10), message(payload())])
    decoder.caught_up(500)
    assert decoder.position == LogPosition(10, 1)
    taken(decoder, [commit(10, 20)])
    decoder.caught_up(15)
    assert decoder.position == LogPosition(20)
    decoder.caught_up(500)
    assert decoder.position == LogPosition(500)


def test_a_transaction_that_lost_events_is_not_gone_on_with() -> None:
    decoder = Decoder(PREFIX, TABLES, LogPosition(10, 3))
    with pytest.raises(ValueError, match="transaction of 1 events, of which 3 are published"):
        taken(decoder, [begin(10), message(payload()), commit(10, 20)])


@pytest.mark.parametrize("letter", [b"S", b"E", b"x", b""])
def test_a_message_that_was_not_asked_for_is_an_error(letter: bytes) -> None:
    with pytest.raises(ValueError, match="in the replication stream"):
        Decoder(PREFIX, TABLES, LogPosition(1)).take(data(letter))
