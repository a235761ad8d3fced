"""Committed events are read from the log once, in commit order, and nothing else is."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import psycopg
import pytest

from outbox import Event, write
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import use_wal
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.rules.batch import Batch
from relay.rules.places.progress import Cursor, LogPosition, Place
from tests.support.relaying import installed
from tests.support.rows import numbers
from tests.support.waiting import patient, until
from tests.support.wal_capturing import (
    MODE,
    append,
    capturing,
    progress_at,
    read,
    read_on,
    secret,
    write_numbers,
)

Fill = Callable[[psycopg.Connection, int, int], None]


@pytest.fixture
def dsn(database: str) -> str:
    """A database whose outbox is written to the log."""
    return installed(database, "wal")


def append_range(conn: psycopg.Connection, first: int, count: int) -> None:
    conn.execute(
        "SELECT outbox.append('t', 'key', n::text::bytea, 'T')"
        " FROM generate_series(%s::int, %s::int) AS n",
        [first, first + count - 1],
    )


def test_transactions_come_in_the_order_of_their_commits(dsn: str) -> None:
    with (
        capturing(dsn) as capture,
        psycopg.connect(dsn) as slow,
        psycopg.connect(dsn) as fast,
    ):
        write_numbers(slow, 1, 2)
        write_numbers(fast, 3)
        write_numbers(slow, 4)
        fast.commit()
        write_numbers(fast, 5)
        slow.commit()
        fast.commit()
        found, place = read(capture, capture.resume(None), 5)
        assert found == [3, 1, 2, 4, 5]
        assert read_on(capture, place, dsn)[0] == []


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """Use up all descriptors that select() can take, and yield the number of the last one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_048:
        pytest.skip(f"no more than {hard} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < 2_048 else soft, hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        last = 0
        while last < 1_024:
            last = os.open(os.devnull, os.O_RDONLY)
            opened.callback(os.close, last)
        yield last


def test_a_process_with_many_descriptors_reads_the_log(dsn: str, many_descriptors: int) -> None:
    with capturing(dsn) as capture:
        place = capture.resume(None)
        append(dsn, 1)
        found, place = read(capture, place, 1)
        capture.wait(0.01)
        capture.interrupt()
        capture.wait(patient(10))
        append(dsn, 2)
        assert (found, read(capture, place, 1)[0]) == ([1], [2])
    assert many_descriptors >= 1_024


def test_what_was_rolled_back_is_never_seen(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        write_numbers(conn, 1)
        conn.rollback()
        write_numbers(conn, 2)
        with conn.transaction(force_rollback=True):
            write_numbers(conn, 3)
        with conn.transaction():
            write_numbers(conn, 4)
            with conn.transaction(force_rollback=True):
                write_numbers(conn, 5)
        conn.commit()
        assert read_on(capture, capture.resume(None), dsn)[0] == [2, 4]


def test_messages_of_others_and_those_that_are_not_committed_are_ignored(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        own = secret(dsn)
        payload = "outbox.encoded('t', NULL, '666', 'T', gen_random_uuid(), 's', NULL, now(), NULL"
        payload += ", NULL, NULL)"
        for transactional, said in [(True, "dovecote/"), (True, "x"), (False, own)]:
            conn.execute(
                f"SELECT pg_logical_emit_message(%s, %s, {payload})".encode(),
                [transactional, said],
            )
        conn.commit()
        conn.execute(f"SELECT pg_logical_emit_message(false, %s, {payload})".encode(), [own])
        conn.rollback()
        write_numbers(conn, 1)
        conn.commit()
        assert read_on(capture, capture.resume(None), dsn)[0] == [1]


EVENTS = [
    Event(topic="t.1", type="Tüp", source="/söurce", key=b"\xff\0k", value=b"\0\xff", subject="é"),
    Event(topic="t", type="T", key="k"),
    Event(topic="t", type="T", value=""),
    Event(topic="t", type="T", value={"a": "ü"}, headers=[("ä", b"\xff"), ("n", None), ("ä", "")]),
    Event(topic="t", type="T", key="", value="x" * 100_000),
    Event(topic="t", type="T", traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_an_event_is_the_same_by_message_by_insert_and_in_the_table(
    database: str, encoding: str, *, together: bool
) -> None:
    installed(database)
    calls = [EVENTS] if together else [[made] for made in EVENTS]

    def write_all() -> None:
        with psycopg.connect(database) as conn:
            conn.execute(f"SET client_encoding = '{encoding}'".encode())
            for call in calls:
                write(conn, *call)

    write_all()
    with closing(TableCapture(database, "outbox", batch_rows=100, batch_bytes=10**7)) as table:
        in_table = [row[1:] for batch in table.batches(Cursor()) for row in batch.rows]
    with psycopg.connect(database) as conn:
        conn.execute("TRUNCATE outbox.events")
    use_wal(database, "outbox")
    write_all()
    with psycopg.connect(database) as conn:
        conn.execute(MODE.replace("%", "false").encode())
    write_all()
    rows: list[tuple[Any, ...]] = []
    with capturing(database) as capture:
        place = capture.resume(None)

        def enough() -> bool:
            nonlocal place
            for batch in capture.batches(place):
                place = batch.cursor
                rows.extend(row[1:] for row in batch.rows)
            return len(rows) >= 2 * len(EVENTS)

        until(enough, within=20, what="all events")
    assert len(in_table) == len(EVENTS)
    assert [without_empty(row) for row in rows] == [without_empty(row) for row in in_table] * 2


def without_empty(row: tuple[Any, ...]) -> list[Any]:
    """Return a row with missing headers written in only one way."""
    return [None if value == [] else value for value in row]


@pytest.mark.parametrize(
    "call",
    [
        "append('t', NULL, NULL, 'T', NULL::uuid)",
        "append_many('{t}', '{k}', '{v}', '{T}', '{NULL}', '{s}', '{NULL}', '{now}', '{NULL}')",
    ],
)
def test_an_event_without_an_id_is_refused_and_not_silently_dropped(dsn: str, call: str) -> None:
    with psycopg.connect(dsn) as conn, pytest.raises(psycopg.errors.NotNullViolation):
        conn.execute(f"SELECT outbox.{call}".encode())


def test_the_events_of_a_call_share_messages_of_some_size(dsn: str) -> None:
    sizes = [*[10] * 200, 300_000, 10, 10, 70_000, 70_000, 10]
    append(dsn, 1)
    with psycopg.connect(dsn) as conn:
        write(conn, *[Event(topic="t", type="T", value="x" * size) for size in sizes])
        conn.commit()
        own = outbox_capture.installed(conn, "outbox")
        found = conn.execute(
            "SELECT length(data) / 1000 FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')"
            " WHERE get_byte(data, 0) = ascii('M')",
            [own.slot, own.publication],
        ).fetchall()
    assert [above(thousands, 300, 140, 70) for (thousands,) in found] == [0, 300, 70, 70, 0]


def test_calls_with_no_events_with_large_ones_and_with_small_ones_come_in_their_order(
    dsn: str,
) -> None:
    lists = ", ".join(["'{}'"] * 9)
    with psycopg.connect(dsn) as conn:
        for headers in ("", ", NULL, NULL, NULL", ", '{}', '{}', '{}'"):
            conn.execute(f"SELECT outbox.append_many({lists}{headers})".encode())
        write(conn, *[Event(topic="t", type="T", value=f"{n:>20000}") for n in range(3)])
        write(conn, *[Event(topic="t", type="T", value=f"{n:>9}") for n in (3, 4)])
    with capturing(dsn) as capture:
        assert read_on(capture, capture.resume(None), dsn)[0] == [0, 1, 2, 3, 4]


def above(size: int, *bounds: int) -> int:
    """Return the first of these bounds that is not above `size`; 0 if there is none."""
    return next((bound for bound in bounds if size >= bound), 0)


def by_one_call(conn: psycopg.Connection, first: int, count: int) -> None:
    write_numbers(conn, *range(first, first + count))


@pytest.mark.parametrize("fill", [append_range, by_one_call])
def test_a_large_transaction_goes_on_in_the_middle_after_a_restart(dsn: str, fill: Fill) -> None:
    with psycopg.connect(dsn) as conn:
        fill(conn, 0, 1_000)
    append(dsn, 1_000, 1_001)
    found: list[int] = []
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 0)
    restarts = 0
    while len(found) < 1_002:
        with capturing(dsn, rows=70) as capture:
            place = capture.resume(progress_at(place, capture))
            batch = first_with_rows(capture, place)
            found.extend(numbers(batch.rows))
            place = batch.cursor
            capture.confirm(place)
        restarts += 1
    assert found == list(range(1_002))
    assert restarts >= 1_002 // 70
    assert isinstance(place, LogPosition)


def first_with_rows(capture: SwitchingCapture, place: Place) -> Batch:
    """Return the first batch after `place`, and read no further."""
    found: list[Batch] = []

    def one() -> bool:
        nonlocal place
        for batch in capture.batches(place):
            place = batch.cursor
            if batch.rows:
                found.append(batch)
                return True
        return False

    until(one, within=20, what="a batch")
    return found[0]


@pytest.mark.parametrize("fill", [append_range, by_one_call])
def test_batches_are_bounded_in_rows_and_bytes(dsn: str, fill: Fill) -> None:
    with psycopg.connect(dsn) as conn:
        fill(conn, 0, 500)
        conn.execute(
            "SELECT outbox.append('t', NULL, convert_to(repeat('7', 10000), 'UTF8'), 'T')"
            " FROM generate_series(1, 20)"
        )
    batches = []
    with capturing(dsn, rows=100, size=50_000) as capture:
        place = capture.resume(None)

        def enough() -> bool:
            nonlocal place
            for batch in capture.batches(place):
                place = batch.cursor
                batches.append(batch)
            return sum(len(batch.rows) for batch in batches) >= 520

        until(enough, within=20, what="all events")
    assert max(len(batch.rows) for batch in batches) == 100
    assert max(batch.size for batch in batches) < 61_000


@pytest.mark.parametrize("mode", ["table", "wal"])
def test_a_call_may_have_more_events_than_fit_a_number_of_bytes(database: str, mode: str) -> None:
    # 8,192 bytes for each are more than 2^31 in all.
    installed(database, mode)
    with psycopg.connect(database) as conn:
        conn.execute(
            "SELECT outbox.append_many(array_fill('t'::text, n), array_fill(NULL::bytea, n),"
            " array_fill('v'::bytea, n), array_fill('Made'::text, n),"
            " ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 270000)),"
            " array_fill('/tests'::text, n), array_fill(NULL::text, n),"
            " array_fill(now(), n), array_fill(NULL::text, n))"
            " FROM (SELECT ARRAY[270000]) AS s (n)"
        )
    with capturing(database) as capture:
        place, count = capture.resume(None), 0
        while count < 270_000:
            for batch in capture.batches(place):
                place, count = batch.cursor, count + len(batch.rows)
    assert count == 270_000
