"""The auditor decodes the log by itself, and knows when it cannot go on."""

import struct
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from dovecote.audit.rules.ids import digest
from dovecote.audit.rules.logged import LogDecoder, Place, Retained, why_anew
from dovecote.audit.rules.matching import LOG

PREFIX = "dovecote secret"


def listed(*values: bytes | None) -> bytes:
    body = b"".join(
        struct.pack(">i", -1) if each is None else struct.pack(">i", len(each)) + each
        for each in values
    )
    return struct.pack(">iiIii", 1, 0, 25, len(values), 1) + body


KIND = listed(b"orders", b"Placed", b"/shop", None)


def message(content: bytes, *, prefix: str = PREFIX, flags: int = 1) -> bytes:
    head = b"M" + struct.pack(">BQ", flags, 7) + prefix.encode() + b"\0"
    return head + struct.pack(">i", len(content)) + content


def one(id_: str, key: bytes | None, value: bytes | None) -> bytes:
    sizes = [-1 if each is None else len(each) for each in (key, value)]
    head = struct.pack(">Bq36siiii", 1, 0, id_.encode(), len(KIND), 3, *sizes)
    return message(head + KIND + b"sub" + (key or b"") + (value or b""))


def many(*ids: str) -> bytes:
    headers = listed(b"a", b"b")
    heads = b"".join(
        struct.pack(">q36siiiii", 0, each.encode(), len(KIND), -1, 1, 1, len(headers))
        for each in ids
    )
    body = (KIND + b"k" + b"v" + headers) * len(ids)
    return message(b"\2" + struct.pack(">i", len(ids)) + heads + body)


def begin(commit: int) -> bytes:
    return b"B" + struct.pack(">QqI", commit, 1_000_000, 5)


def end(commit: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, commit, commit + 8, 1_000_000)


def relation(schema: str, name: str, *columns: str) -> bytes:
    head = b"R" + struct.pack(">I", 42) + f"{schema}\0{name}\0".encode() + b"d"
    body = b"".join(b"\0" + each.encode() + b"\0" + struct.pack(">Ii", 25, -1) for each in columns)
    return head + struct.pack(">h", len(columns)) + body


def insert(*values: bytes | None) -> bytes:
    body = b"".join(
        b"n" if each is None else b"b" + struct.pack(">i", len(each)) + each for each in values
    )
    return b"I" + struct.pack(">I", 42) + b"N" + struct.pack(">h", len(values)) + body


def test_events_of_both_formats_become_rows_in_the_order_of_commits() -> None:
    first, second, third = (str(uuid4()) for _ in range(3))
    decoder = LogDecoder("outbox", PREFIX, Place(at=100))
    assert decoder.take(begin(200)) == []
    (row,) = decoder.take(one(first, b"k", None))
    assert row == (
        LOG + 1, 946_684_801_000, "orders", "/shop", UUID(first).bytes, digest(b"k", None),
    )  # fmt: skip
    rows = decoder.take(many(second, third))
    assert [(each[0] - LOG, each[4]) for each in rows] == [
        (2, UUID(second).bytes),
        (3, UUID(third).bytes),
    ]
    assert rows[0][5] == digest(b"k", b"v")
    decoder.caught_up(999)
    assert decoder.place.at == 100, "a transaction is half read"
    decoder.take(end(200))
    assert decoder.place == Place(at=208, events=3, end=200)
    decoder.caught_up(300)
    assert decoder.place.at == 300


def test_messages_of_others_and_rows_of_other_tables_are_passed_over() -> None:
    decoder = LogDecoder("outbox", PREFIX, Place(at=100))
    decoder.take(begin(200))
    assert decoder.take(message(b"\1", prefix="other")) == []
    assert decoder.take(message(b"\1", flags=0)) == []
    decoder.take(relation("shop", "events", "id"))
    assert decoder.take(insert(uuid4().bytes)) == []


def test_rows_that_were_inserted_while_the_capture_changed_are_events() -> None:
    decoder, id_ = LogDecoder("outbox", PREFIX, Place(at=100)), uuid4()
    decoder.take(begin(200))
    decoder.take(
        relation("outbox", "events_2", "position", "id", "topic", "source", "key", "value")
    )
    (row,) = decoder.take(insert(b"\0" * 8, id_.bytes, b"orders", b"/shop", None, b"v"))
    assert row[2:] == ("orders", "/shop", id_.bytes, digest(None, b"v"))


def test_what_was_read_of_a_transaction_is_not_read_again() -> None:
    ids = [str(uuid4()) for _ in range(5)]
    before = LogDecoder("outbox", PREFIX, Place(at=100))
    before.take(begin(200))
    assert len(before.take(many(*ids[:2]))) == 2
    kept = replace(before.place)
    after = LogDecoder("outbox", PREFIX, kept)
    after.take(begin(200))
    assert after.take(many(*ids[:2])) == []
    assert [each[0] - LOG for each in after.take(many(*ids[2:]))] == [3, 4, 5]
    after.take(end(200))
    after.take(begin(200))
    assert after.take(many(*ids)) == [], "all of it is read"


@pytest.mark.parametrize(
    "content",
    [b"\3", b"\1short", b"\2" + struct.pack(">i", 9), many(str(uuid4()))[30:] + b"more", b""],
)
def test_what_is_not_understood_is_an_error_and_no_event(content: bytes) -> None:
    decoder = LogDecoder("outbox", PREFIX, Place(at=100))
    decoder.take(begin(200))
    with pytest.raises(ValueError, match=r"upgrade|not understood|bytes"):
        decoder.take(message(content))


GOOD = Retained(confirmed=90, retained=1_000, process=None, invalid=None)


@pytest.mark.parametrize(
    ("slot", "end", "why"),
    [
        (GOOD, 200, None),
        (None, 200, "is gone"),
        (GOOD._replace(invalid="wal_removed"), 200, "wal_removed"),
        (GOOD._replace(retained=None), 200, "took its slot away"),
        (GOOD._replace(invalid="wal_removed"), 200, "raise max_slot_wal_keep_size"),
        (GOOD._replace(invalid="idle_timeout"), 200, "raise idle_replication_slot_timeout"),
        (GOOD._replace(confirmed=101), 200, "moved or made anew"),
        (GOOD._replace(retained=5_001), 200, "5,001 bytes of the log, more than 5,000"),
        (GOOD, 99, "earlier state"),
    ],
)
def test_the_reading_goes_on_only_where_nothing_is_missing(
    slot: Retained | None, end: int, why: str | None
) -> None:
    said = why_anew(Place(at=100), slot, end, 5_000)
    assert said is None if why is None else why in str(said)
