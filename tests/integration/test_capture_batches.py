"""The table is read in bounded batches, along its indexes, and its lag is counted."""

import time

import psycopg
import pytest
from psycopg import Connection

from dovecote.devstack.postgres.postgres import Postgres
from relay.postgres.capture.lag import waiting
from relay.postgres.capture.table import TableCapture
from relay.postgres.connect import follow_indexes
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import Cursor
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import VALUE, size_of
from tests.support.capturing import (
    LARGE,
    after_restart,
    append,
    append_range,
    capturing,
    database_of,
    read,
    sessions,
)
from tests.support.relaying import installed
from tests.support.rows import numbers
from tests.support.waiting import patient


def test_an_event_is_read_soon_while_another_transaction_writes_and_does_not_end(
    lazy: Postgres,
) -> None:
    dsn = installed(database_of(lazy))
    with capturing(dsn) as capture, sessions(dsn, 2) as (open_one, other):
        # Its rows are not on disk, and lie before everything that is committed later.
        append(open_one, -1)
        append(other, 1)
        other.commit()
        open_one.execute("SELECT pg_current_xact_id()")
        append(open_one, -2)
        assert read(capture, Cursor())[0] == [1]


def test_a_poll_ends_with_what_it_found_and_the_next_one_has_what_came_since(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        append(conn, 1)
        conn.commit()
        polled = capture.batches(Cursor())
        found = next(polled)
        append(conn, 2)
        conn.commit()
        assert list(polled) == []
        assert numbers(found.rows) == [1]
        assert read(capture, found.cursor)[0] == [2]


@pytest.mark.parametrize("rows", [1, 7, 100, 499, 500, 501, 5000])
def test_no_batch_is_larger_than_asked_for(dsn: str, rows: int) -> None:
    with capturing(dsn, rows=rows) as capture, psycopg.connect(dsn) as conn:
        append_range(conn, 0, 1001)
        conn.commit()
        sizes = [len(batch.rows) for batch in capture.batches(Cursor())]
        assert max(sizes) <= rows
        assert sum(sizes) == 1001
        assert read(capture, Cursor())[0] == list(range(1001))


def test_a_window_is_split_where_its_values_are_large(dsn: str) -> None:
    most = 10_000
    sizes = [10, 9_000, 2_000, 30_000, 10, 10, 10_000, 5_000, 6_000, 10]
    with capturing(dsn, size=most) as capture, psycopg.connect(dsn) as conn:
        for size in sizes:
            conn.execute("SELECT outbox.append('t', 'k', repeat('x', %s)::bytea, 'T')", [size])
        conn.commit()
        batches = [batch for batch in capture.batches(Cursor()) if batch.rows]
        assert [len(row[VALUE] or b"") for batch in batches for row in batch.rows] == sizes
        for batch in batches:
            assert batch.size == sum(map(size_of, batch.rows))
            # It ends with the event that fills it.
            assert batch.size - size_of(batch.rows[-1]) < most
        resumed = [capture.batches(after_restart(batch.cursor, capture)) for batch in batches]
        left = [sum(len(batch.rows) for batch in rest) for rest in resumed]
        assert left == [
            sum(len(batch.rows) for batch in batches[n:]) for n in range(1, len(batches) + 1)
        ]


def test_headers_and_subjects_count_in_the_bytes_of_a_batch(dsn: str) -> None:
    with capturing(dsn, size=100_000) as capture, psycopg.connect(dsn) as conn:
        conn.execute(
            "SELECT outbox.append('t', NULL, NULL, 'T', subject => repeat(md5(n::text), 300),"
            " header_names => '{a, b}', header_values => ARRAY[NULL, (SELECT"
            " string_agg(sha256((n || '/' || i)::text::bytea), '')"
            " FROM generate_series(1, 625) AS i)]) FROM generate_series(1, 20) AS n"
        )
        conn.commit()
        batches = [batch for batch in capture.batches(Cursor()) if batch.rows]
        assert [len(batch.rows) for batch in batches] == [4] * 5
        assert {batch.size for batch in batches} == {4 * (9_600 + 20_000 + 2)}


@pytest.mark.parametrize("count", [1, LARGE])
def test_a_batch_says_up_to_where_the_log_holds_its_commits(dsn: str, count: int) -> None:
    with capturing(dsn, rows=400) as capture, psycopg.connect(dsn) as conn:
        append_range(conn, 1, count)
        conn.commit()
        row = conn.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        end, seen = parse_lsn(row[0] if row else ""), capture.origin().snapshot
        for batch in [*capture.batches(Cursor()), *capture.up_to(seen, Cursor())]:
            assert batch.lsn is not None
            assert parse_lsn(batch.lsn) >= end


@pytest.mark.contract
def test_a_window_goes_on_in_the_middle_after_a_restart(dsn: str) -> None:
    with sessions(dsn, 2) as (late, conn):
        append(late, -1)
        append_range(conn, 0, 1000)
        conn.commit()
        with capturing(dsn, rows=300) as capture:
            first = next(iter(capture.batches(Cursor())))
            cursor = after_restart(first.cursor, capture)
        assert (cursor, len(first.rows)) == (first.cursor, 300)
        assert cursor.until is not None
        # These come later, one of them at a position that was passed already.
        late.commit()
        append(conn, 1000)
        conn.commit()
        with capturing(dsn, rows=450) as capture:
            found, cursor = read(capture, cursor)
            assert found == [*range(300, 1000), -1, 1000]
            assert read(capture, cursor)[0] == []


def test_a_huge_transaction_is_read_in_bounded_batches(dsn: str) -> None:
    count = 200_000
    with capturing(dsn, rows=20_000) as capture, psycopg.connect(dsn) as conn:
        append_range(conn, 0, count)
        conn.commit()
        found = 0
        for batch in capture.batches(Cursor()):
            assert numbers(batch.rows) == list(range(found, found + len(batch.rows)))
            found += len(batch.rows)
            cursor = batch.cursor
        assert found == count
        assert read(capture, cursor)[0] == []


def test_thousands_of_running_transactions_in_the_cursor_are_no_burden(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        append(conn, 1)
        conn.commit()
        _, cursor = read(capture, Cursor())
        (xmin,) = conn.execute("SELECT xid::text::bigint FROM outbox.events").fetchone() or (0,)
        conn.execute("CREATE TEMP TABLE burnt (n int)")
        conn.commit()
        running = []
        for number in range(2, 4):
            append(conn, number)
            row = conn.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            running.append(row[0] if row else 0)
            conn.commit()
        # As if these two had run beside thousands of others when the cursor was made.
        crowd = tuple(range(xmin + 10**6, xmin + 10**6 + 5000))
        since = Snapshot(running[0], crowd[-1] + 1, (*running, *crowd))
        began = time.monotonic()
        found, cursor = read(capture, Cursor(since))
        assert found == [2, 3]
        assert time.monotonic() - began < patient(2)
        assert len(cursor.since.xip) == 0


def test_reading_follows_the_indexes_however_much_was_published(dsn: str) -> None:
    published = 50_000
    with capturing(dsn) as capture, sessions(dsn, 2) as (late, conn):
        # The planner has no statistics of the table, as after a fast start.
        conn.execute("ALTER TABLE outbox.events SET (autovacuum_enabled = off)")
        append(late, -1)
        append_range(conn, 0, published)
        conn.commit()
        _, cursor = read(capture, Cursor())
        before = scans(capture, conn)
        for number in range(10):
            append(conn, number)
            conn.commit()
            found, cursor = read(capture, cursor)
            assert found == [number]
        for _ in range(10):
            assert read(capture, cursor)[0] == []
        ticks = scans(capture, conn)
        assert ticks["sequential"] == before["sequential"]
        assert ticks["events_pkey"] == before["events_pkey"]
        # Its own rows and the uncommitted one, seen by a few scans of each tick.
        assert ticks["events_xid"] - before["events_xid"] < 500
        append_range(conn, 0, 2 * LARGE)
        conn.commit()
        assert len(read(capture, cursor)[0]) == 2 * LARGE
        pages = scans(capture, conn)
        assert pages["sequential"] == before["sequential"]
        assert pages["events_pkey"] - ticks["events_pkey"] < 10 * LARGE
        assert pages["events_xid"] - ticks["events_xid"] < 10 * LARGE


def scans(capture: TableCapture, conn: Connection) -> dict[str, int]:
    """Return how often the table was scanned, and how many entries of each index were read."""
    capture._conn.execute("SELECT pg_stat_force_next_flush()")
    capture._conn.execute("SELECT 1")
    with conn.transaction():
        # Added up over all leaves: events_0_pkey counts as events_pkey.
        indexes = conn.execute(
            "SELECT regexp_replace(indexrelname, '_[0-9]+', ''), sum(idx_tup_read)::int"
            " FROM pg_stat_user_indexes WHERE relname ~ '^events' GROUP BY 1"
        ).fetchall()
        table = conn.execute(
            "SELECT 'sequential', sum(seq_scan)::int FROM pg_stat_user_tables"
            " WHERE relname ~ '^events'"
        ).fetchall()
    conn.rollback()
    return dict(indexes + table)


def test_lag_is_counted_from_the_cursor(dsn: str) -> None:
    with capturing(dsn, rows=300) as capture, psycopg.connect(dsn) as conn:
        append_range(conn, 0, 1000)
        conn.commit()
        assert waiting(conn, "outbox", Cursor())[0] == 1000
        assert waiting(conn, "outbox", Cursor(), most=10)[0] == 10
        batches = list(capture.batches(Cursor()))
        left = [
            waiting(conn, "outbox", after_restart(batch.cursor, capture))[0] for batch in batches
        ]
        assert left == [700, 400, 100, 0, 0]
        append(conn, 1)
        conn.commit()
        rows, age = waiting(conn, "outbox", after_restart(batches[-1].cursor, capture))
        assert rows == 1
        assert 0 < age < 60


def test_counting_the_lag_follows_an_index_too(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        follow_indexes(conn)
        conn.execute("ALTER TABLE outbox.events SET (autovacuum_enabled = off)")
        append_range(conn, 0, 20_000)
        conn.commit()
        _, cursor = read(capture, Cursor())
        before = scans(capture, conn)
        for _ in range(10):
            assert waiting(conn, "outbox", cursor) == (0, 0.0)
        conn.commit()
        conn.execute("SELECT pg_stat_force_next_flush()")
        conn.commit()
        assert scans(capture, conn) == before


def test_a_clock_that_went_back_makes_no_negative_lag(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        append(conn, 1)
        conn.execute("UPDATE outbox.events SET appended_at = now() + interval '1 hour'")
        conn.commit()
        assert waiting(conn, "outbox", Cursor()) == (1, 0.0)
