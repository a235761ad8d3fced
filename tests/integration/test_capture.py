"""Every committed event is read once, in the order of the lock, whatever else the server does."""

import random
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.postgres.postgres import installation as installation_of
from outbox import Event, write
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.postgres.capture.lag import waiting
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.connect import connect, follow_indexes
from relay.rules.batch import Batch
from relay.rules.places.lsn import parse_lsn
from relay.rules.places.progress import Cursor, Place, Progress, at
from relay.rules.places.snapshot import Snapshot
from tests.support.fix_stack import Servers, new_database
from tests.support.relaying import event, installed
from tests.support.waiting import patient, until

LARGE = 501  # one more than a tick reads in one statement


@pytest.fixture(scope="module")
def installation(stack: Servers) -> Iterator[str]:
    with new_database(stack) as database:
        yield installed(database)


@pytest.fixture
def dsn(installation: str) -> str:
    """A database with an outbox, emptied."""
    with psycopg.connect(installation) as conn:
        conn.execute("TRUNCATE outbox.events")
    return installation


@contextmanager
def capturing(dsn: str, *, rows: int = 10_000, size: int = 16_000_000) -> Iterator[TableCapture]:
    with closing(TableCapture(dsn, "outbox", batch_rows=rows, batch_bytes=size)) as capture:
        yield capture


def after_restart(cursor: Place, capture: TableCapture) -> Cursor:
    """Return the cursor as the next relay finds it in the progress record."""
    found = Progress.decode(at("shop", capture.origin(), cursor).encode()).cursor
    assert isinstance(found, Cursor)
    return found


def read(capture: TableCapture, cursor: Place) -> tuple[list[int], Cursor]:
    """Return the numbers of everything after `cursor`, and the cursor's place then."""
    found: list[int] = []
    for batch in capture.batches(cursor):
        found += [int(row[5]) for row in batch.rows]
        cursor = batch.cursor
    return found, after_restart(cursor, capture)


def append(conn: Connection, *numbers: int) -> None:
    write(conn, *[event("t", number) for number in numbers])


def append_range(conn: Connection, first: int, count: int) -> None:
    conn.execute(
        "SELECT outbox.append('t', 'key', n::text::bytea, 'T')"
        " FROM generate_series(%s::int, %s::int) AS n",
        [first, first + count - 1],
    )


@contextmanager
def sessions(dsn: str, count: int) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn)) for _ in range(count)]


@pytest.mark.contract
def test_what_is_committed_is_read_once(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        append(conn, 1, 2)
        assert read(capture, Cursor())[0] == []
        conn.commit()
        found, cursor = read(capture, Cursor())
        assert found == [1, 2]
        assert read(capture, cursor)[0] == []
        append(conn, 3)
        conn.rollback()
        append(conn, 4)
        conn.commit()
        assert read(capture, cursor)[0] == [4]


def test_where_nothing_is_committed_a_glance_is_enough_and_whatever_is_committed_ends_that(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[Snapshot] = []
    tick = TableCapture._tick

    def noted(capture: TableCapture, since: Snapshot) -> Any:
        ticks.append(since)
        return tick(capture, since)

    monkeypatch.setattr(TableCapture, "_tick", noted)
    with capturing(dsn) as capture, sessions(dsn, 2) as (early, late):
        append(early, 1)
        append(late, 2)
        _, cursor = read(capture, Cursor())
        ticks.clear()
        for _ in range(5):
            assert read(capture, cursor) == ([], cursor)
        assert ticks == []
        late.commit()
        found, cursor = read(capture, cursor)
        assert found == [2]
        # Nothing is known of another cursor.
        assert read(capture, Cursor())[0] == [2]
        early.rollback()
        assert read(capture, cursor)[0] == []
        append(early, 3)
        early.commit()
        assert read(capture, cursor)[0] == [3]


def test_a_session_that_the_server_ends_at_a_glance_says_why(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn, autocommit=True) as conn:
        _, cursor = read(capture, Cursor())
        read(capture, cursor)
        pid = capture.conn.info.backend_pid
        (ended,) = conn.execute("SELECT pg_terminate_backend(%s, 10000)", [pid]).fetchone() or (0,)
        assert ended
        with pytest.raises(psycopg.OperationalError, match="administrator command"):
            read(capture, cursor)


@pytest.mark.contract
def test_a_late_commit_with_a_low_position_is_not_lost(dsn: str) -> None:
    with capturing(dsn) as capture, sessions(dsn, 2) as (slow, fast):
        append(slow, 1)
        append(fast, 2)
        fast.commit()
        found, cursor = read(capture, Cursor())
        assert found == [2]
        append(fast, 3)
        fast.commit()
        slow.commit()
        found, cursor = read(capture, cursor)
        assert found == [1, 3]
        assert read(capture, cursor)[0] == []


@pytest.mark.contract
def test_a_late_commit_far_behind_a_large_window_is_not_lost(dsn: str) -> None:
    with capturing(dsn, rows=100) as capture, sessions(dsn, 2) as (slow, fast):
        append(slow, 1)
        append_range(fast, 2, 700)
        fast.commit()
        found, cursor = read(capture, Cursor())
        assert found == list(range(2, 702))
        append_range(fast, 702, 700)
        fast.commit()
        slow.commit()
        found, cursor = read(capture, cursor)
        assert found == [1, *range(702, 1402)]
        assert read(capture, cursor)[0] == []


@pytest.mark.contract
@pytest.mark.parametrize("writes_itself", [False, True])
def test_a_long_open_transaction_stalls_nothing(
    dsn: str,
    writes_itself: bool,  # noqa: FBT001  # the case itself
) -> None:
    with capturing(dsn) as capture, sessions(dsn, 2) as (open_one, other):
        open_one.execute("SELECT pg_current_xact_id()")
        if writes_itself:
            append(open_one, -1)
        cursor = Cursor()
        for number in range(20):
            append(other, number)
            other.commit()
            found, cursor = read(capture, cursor)
            assert found == [number]
        append_range(other, 20, LARGE)
        other.commit()
        found, cursor = read(capture, cursor)
        assert found == list(range(20, 20 + LARGE))
        open_one.commit()
        assert read(capture, cursor)[0] == ([-1] if writes_itself else [])


@pytest.mark.contract
def test_a_rolled_back_savepoint_is_never_read_and_a_kept_one_is(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        append(conn, 1)
        with conn.transaction():
            append(conn, 2)
        with conn.transaction(force_rollback=True):
            append(conn, 3)
            with conn.transaction():
                append(conn, 4)
        assert read(capture, Cursor())[0] == []
        append(conn, 5)
        conn.commit()
        assert read(capture, Cursor())[0] == [1, 2, 5]


def test_more_subtransactions_than_the_server_keeps_in_memory_are_read_as_one(dsn: str) -> None:
    with capturing(dsn) as capture, sessions(dsn, 2) as (conn, other):
        conn.execute("BEGIN")
        for number in range(100):
            with conn.transaction():
                append(conn, number)
        append(other, 1000)
        other.commit()
        found, cursor = read(capture, Cursor())
        assert found == [1000]
        conn.commit()
        assert read(capture, cursor)[0] == list(range(100))


def test_transaction_ids_compare_as_numbers(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn, autocommit=True) as conn:
        (xid,) = conn.execute("SELECT pg_current_xact_id()::text::int").fetchone() or (0,)
        border = 10 ** len(str(xid))
        assert border < 1_000_000, "this server is too old for this test"
        # A thousand at a time, because each subtransaction that writes takes one.
        conn.execute("CREATE TEMP TABLE burnt (n int)")
        burn = (
            "DO $$ BEGIN FOR i IN 1..{} LOOP BEGIN INSERT INTO burnt VALUES (i);"
            " EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$"
        )
        cursor = Cursor()
        conn.execute(burn.format(border - xid - 10).encode())
        for number in range(20):
            with conn.transaction():
                append(conn, number)
            found, cursor = read(capture, cursor)
            assert found == [number]
        assert cursor.since.xmax > border


def test_a_prepared_transaction_is_read_when_it_is_committed() -> None:
    folder = temporary_directory(server_user())
    with Postgres(
        folder, fsync=False, settings={"max_prepared_transactions": "2"}, temporary=True
    ) as postgres:
        dsn = installed(postgres.dsn)
        with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
            append(conn, 1)
            conn.execute("PREPARE TRANSACTION 'one'")
            conn.commit()
            append(conn, 2)
            conn.commit()
            found, cursor = read(capture, Cursor())
            assert found == [2]
        # It outlives the server, and so does its place in the snapshots.
        postgres.restart()
        with capturing(dsn) as capture, psycopg.connect(dsn, autocommit=True) as conn:
            found, cursor = read(capture, cursor)
            assert found == []
            conn.execute("COMMIT PREPARED 'one'")
            assert read(capture, cursor)[0] == [1]


def test_ids_that_a_crash_gives_out_again_are_not_skipped() -> None:
    folder = temporary_directory(server_user())
    lazy = {"wal_writer_delay": "10s", "autovacuum": "off"}
    with Postgres(folder, fsync=False, settings=lazy, temporary=True) as postgres:
        dsn = installed(postgres.dsn)
        with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
            append(conn, 1)
            conn.commit()
            # Everything before what is read is written to disk.
            found, cursor = read(capture, Cursor())
            assert found == [1]
            for number in range(20):
                append(conn, -number)
                conn.rollback()
            (before,) = conn.execute("SELECT pg_current_snapshot()::text").fetchone() or ("",)
            found, cursor = read(capture, cursor)
            assert found == []
        postgres.kill()
        postgres.start()
        with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
            (after,) = conn.execute("SELECT pg_current_snapshot()::text").fetchone() or ("",)
            assert Snapshot.parse(after).xmax < Snapshot.parse(before).xmax, (
                "nothing was forgotten"
            )
            for number in range(2, 12):
                append(conn, number)
                conn.commit()
            found, cursor = read(capture, cursor)
            assert found == list(range(2, 12))


ROUND = (
    "INSERT INTO outbox.events (topic, key, value, type, id, source, time)"
    " SELECT 't', 'key', n::text::bytea, 'T', gen_random_uuid(), '/t', now() FROM {}"
)
WAYS_TO_COMMIT_LAZILY = {
    "on by the outbox": ["SELECT outbox.append('t', 'key', n::text::bytea, 'T') FROM {}"],
    "off by the end of a function": ["SELECT lazily(n) FROM {}"],
    "off by a function that turns it on": ["SELECT eagerly(n) FROM {}"],
    "off behind the write": [
        "SELECT outbox.append('t', 'key', n::text::bytea, 'T') FROM {}",
        "SET LOCAL synchronous_commit = off",
    ],
    "off round the outbox": [ROUND],
}


@pytest.fixture(scope="module")
def lazy() -> Iterator[Postgres]:
    """A server that writes to disk only what it must, and nothing earlier."""
    folder = temporary_directory(server_user())
    settings = {"wal_writer_delay": "10s", "synchronous_commit": "off", "autovacuum": "off"}
    with Postgres(folder, fsync=False, settings=settings, temporary=True) as postgres:
        yield postgres


def database_of(server: Postgres) -> str:
    """Create a database that vanishes with its server, and return its dsn."""
    name = f"lazy_{uuid4().hex[:8]}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("SET synchronous_commit = on")
        conn.execute(f"CREATE DATABASE {name}".encode())
    return make_conninfo(server.dsn, dbname=name)


@pytest.mark.parametrize("count", [3, LARGE])
@pytest.mark.parametrize("way", WAYS_TO_COMMIT_LAZILY)
def test_an_event_that_was_read_survives_a_crash_whatever_the_session_says(
    lazy: Postgres, way: str, count: int
) -> None:
    dsn = installed(database_of(lazy))
    with psycopg.connect(dsn) as conn:
        appends = "PERFORM outbox.append('t', 'key', n::text::bytea, 'T');"
        for function, value in (("lazily", "off"), ("eagerly", "on")):
            conn.execute(
                f"CREATE FUNCTION {function}(n int) RETURNS void LANGUAGE plpgsql"
                f" SET synchronous_commit = {value} AS $$ BEGIN {appends} END $$".encode()
            )
        conn.execute("SET LOCAL synchronous_commit = on")
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        for statement in WAYS_TO_COMMIT_LAZILY[way]:
            conn.execute(statement.format(f"generate_series(1, {count}) AS n").encode())
        conn.commit()
        assert read(capture, Cursor())[0] == [*range(1, count + 1)]
    lazy.kill()
    lazy.start()
    with capturing(dsn) as capture:
        assert read(capture, Cursor())[0] == [*range(1, count + 1)]


def test_what_relays_and_operators_write_survives_a_crash_whatever_is_usual_there(
    lazy: Postgres,
) -> None:
    dsn = installed(database_of(lazy))
    with connect(dsn, purpose="test") as conn:
        conn.execute("INSERT INTO public.written (id) VALUES ('1')")
    lazy.kill()
    lazy.start()
    use_wal(dsn, "outbox")
    use_table(dsn, "outbox")
    lazy.kill()
    lazy.start()
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT id FROM written").fetchall() == [("1",)]
        assert outbox_capture.installed(conn, "outbox").state == "leaving"


def test_what_is_handed_over_before_it_is_on_disk_says_so(lazy: Postgres) -> None:
    dsn = installed(database_of(lazy))

    def commit_lazily(conn: Connection, number: int) -> None:
        conn.execute(ROUND.format(f"generate_series({number}, {number}) AS n").encode())
        conn.commit()

    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        commit_lazily(conn, 1)
        batches = capture.batches(Cursor())
        batch = next(batches)
        assert batch.is_kept is not None
        assert not batch.is_kept(0)
        assert list(batches) == []
        assert batch.is_kept(0)
        commit_lazily(conn, 2)
        batches = capture.batches(batch.cursor)
        abandoned = next(batches)
        assert abandoned.is_kept is not None
        del batches
        assert not abandoned.is_kept(10), "nobody will find out"


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
        assert [int(row[5]) for row in found.rows] == [1]
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
        assert [len(row[5]) for batch in batches for row in batch.rows] == sizes
        for batch in batches:
            assert batch.size == sum(len(row[4]) + len(row[5]) for row in batch.rows)
            # It ends with the event that fills it.
            assert batch.size - len(batch.rows[-1][5]) - 1 < most
        resumed = [capture.batches(after_restart(batch.cursor, capture)) for batch in batches]
        left = [sum(len(batch.rows) for batch in rest) for rest in resumed]
        assert left == [
            sum(len(batch.rows) for batch in batches[n:]) for n in range(1, len(batches) + 1)
        ]


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
            assert [int(row[5]) for row in batch.rows] == list(
                range(found, found + len(batch.rows))
            )
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


def restore(conn: Connection, xid: str, *, above: int = 0) -> None:
    """Give rows with higher numbers than `above` the transaction of another server's dump."""
    conn.execute(
        "UPDATE outbox.events SET xid = %s::text::xid8"
        " WHERE convert_from(value, 'UTF8')::int > %s",
        [xid, above],
    )


def transaction_of(conn: Connection) -> str:
    row = conn.execute("SELECT pg_current_xact_id()::text").fetchone()
    assert row is not None
    return str(row[0])


def begin(dsn: str) -> None:
    """Begin like a relay, under a name that has published nothing."""
    timing = Timing(lease=10, heartbeat=10)
    with closing(
        SwitchingCapture(dsn, "outbox", batch_rows=10, batch_bytes=1000, timing=timing)
    ) as capture:
        capture.resume(None)


@pytest.mark.parametrize("of", ["a transaction to come", "an open transaction"])
def test_events_of_another_servers_dump_are_refused(dsn: str, of: str) -> None:
    with sessions(dsn, 2) as (conn, other):
        xid = "9000000000" if of == "a transaction to come" else transaction_of(other)
        append(conn, 1)
        restore(conn, xid)
        conn.commit()
        with pytest.raises(Refused, match=f"transaction {xid}, which is not over") as refused:
            begin(dsn)
        (remedy,) = re.findall("`(UPDATE .*)`", str(refused.value))
        append(conn, 2)
        conn.execute(remedy.encode())
        conn.commit()
        begin(dsn)
        with capturing(dsn) as capture:
            found, cursor = read(capture, Cursor())
            assert found == [1, 2]
            other.commit()
            assert read(capture, cursor)[0] == []


@pytest.mark.parametrize("count", [1, LARGE])
@pytest.mark.parametrize("began", ["before the cursor", "behind the cursor"])
def test_rows_of_a_dump_are_read_once_when_their_transaction_is_over_here(
    dsn: str, began: str, count: int
) -> None:
    with capturing(dsn) as capture, sessions(dsn, 2) as (conn, other):
        cursor = Cursor()
        xid = transaction_of(other) if began == "before the cursor" else ""
        append(conn, 0)
        conn.commit()
        _, cursor = read(capture, cursor)
        # Restored while the relay runs, when nothing refuses it any more.
        append_range(conn, 1, count)
        restore(conn, xid or transaction_of(other))
        conn.commit()
        for number in range(-3, 0):
            append(conn, number)
            conn.commit()
            found, cursor = read(capture, cursor)
            assert found == [number]
            assert waiting(conn, "outbox", cursor) == (0, 0.0)
            conn.commit()
        other.rollback()
        found, cursor = read(capture, cursor)
        assert found == list(range(1, count + 1))
        assert read(capture, cursor)[0] == []


def test_rows_of_a_dump_from_the_future_are_not_read_yet(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        append(conn, 1, 2)
        restore(conn, "9000000000", above=1)
        conn.commit()
        found, cursor = read(capture, Cursor())
        assert found == [1]
        assert read(capture, cursor)[0] == []


def test_a_sequence_with_a_cache_is_refused(database: str) -> None:
    installed(database)
    with psycopg.connect(database) as conn:
        conn.execute("ALTER TABLE outbox.events ALTER position SET CACHE 50")
    with pytest.raises(Refused, match=r"CACHE 50.*ALTER SEQUENCE"):
        TableCapture(database, "outbox", batch_rows=10, batch_bytes=1000)


def test_a_standby_is_refused() -> None:
    folder = temporary_directory(server_user())
    with Postgres(folder, fsync=False, temporary=True) as postgres:
        dsn = installed(postgres.dsn)
        postgres.stop()
        Path(folder, "data", "standby.signal").touch()
        postgres.start()
        with pytest.raises(Refused, match=r"is a standby: .*connect to the primary"):
            TableCapture(dsn, "outbox", batch_rows=10, batch_bytes=1000)


@pytest.mark.parametrize("epoch", [1, 2**31])
def test_transaction_ids_are_told_apart_however_high_they_are(epoch: int) -> None:
    user, folder = server_user(), temporary_directory(server_user())
    with Postgres(folder, fsync=False, temporary=True) as postgres:
        dsn = installed(postgres.dsn)
        postgres.stop()
        subprocess.run(
            [
                installation_of(user) / "bin/pg_resetwal",
                "-f",
                "-e",
                str(epoch),
                Path(folder, "data"),
            ],
            cwd=Path(folder, "data"),
            user=user.uid if user else None,
            group=user.gid if user else None,
            check=True,
            capture_output=True,
        )
        postgres.start()
        with capturing(dsn, rows=2) as capture, sessions(dsn, 2) as (early, late):
            append(early, 1)
            append(late, 2)
            late.commit()
            found, cursor = read(capture, Cursor())
            assert found == [2]
            assert isinstance(cursor, Cursor)
            assert cursor.since.xmax > epoch << 32
            append(late, 3, 4, 5)
            late.commit()
            early.commit()
            found, cursor = read(capture, cursor)
            assert found == [1, 3, 4, 5]
            assert read(capture, cursor)[0] == []


def test_a_role_that_may_read_the_outbox_is_enough(dsn: str) -> None:
    role = "reader_of_events"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        conn.execute(f"GRANT USAGE ON SCHEMA outbox TO {role}".encode())
        conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA outbox TO {role}".encode())
        try:
            with conn.transaction():
                append(conn, 1)
            own = psycopg.conninfo.make_conninfo(dsn, user=role, password="x")  # noqa: S106  # of a moment
            with capturing(own) as capture:
                assert read(capture, Cursor())[0] == [1]
        finally:
            conn.execute(f"DROP OWNED BY {role}".encode())
            conn.execute(f"DROP ROLE {role}".encode())


class Interleaving(RuleBasedStateMachine):
    """Any order of writing, committing, rolling back, reading and restarting."""

    dsn = ""

    @initialize(rows=st.sampled_from([1, 3, 1000]))
    def begin(self, rows: int) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute("TRUNCATE outbox.events")
        self.number = 0
        self.writers = [psycopg.connect(self.dsn) for _ in range(3)]
        self.pending: list[list[int]] = [[] for _ in self.writers]
        self.rows = rows
        self.capture = self.open()
        self.cursor: Place = Cursor()
        self.committed: list[int] = []
        self.found: list[int] = []

    def open(self) -> TableCapture:
        return TableCapture(self.dsn, "outbox", batch_rows=self.rows, batch_bytes=10**6)

    @rule(writer=st.integers(0, 2), count=st.integers(1, 4))
    def append(self, writer: int, count: int) -> None:
        numbers = list(range(self.number, self.number + count))
        self.number += count
        append(self.writers[writer], *numbers)
        self.pending[writer] += numbers

    @rule(writer=st.integers(0, 2))
    def append_and_undo(self, writer: int) -> None:
        with self.writers[writer].transaction(force_rollback=True):
            append(self.writers[writer], -1)

    @rule(writer=st.integers(0, 2))
    def commit(self, writer: int) -> None:
        self.writers[writer].commit()
        self.committed += self.pending[writer]
        self.pending[writer] = []

    @rule(writer=st.integers(0, 2))
    def roll_back(self, writer: int) -> None:
        self.writers[writer].rollback()
        self.pending[writer] = []

    def take(self, batch: Batch) -> None:
        self.found += [int(row[5]) for row in batch.rows]
        self.cursor = batch.cursor

    @rule()
    def read_all(self) -> None:
        start = len(self.found)
        behind = sorted(set(self.committed) - set(self.found))
        window = self.cursor.until if isinstance(self.cursor, Cursor) else None
        for batch in self.capture.batches(self.cursor):
            self.take(batch)
        assert sorted(self.found[start:]) == behind
        if window is None:
            assert self.found[start:] == behind

    @precondition(lambda self: set(self.committed) != set(self.found))
    @rule(batches=st.integers(1, 3))
    def read_some_and_crash(self, batches: int) -> None:
        for batch in islice(self.capture.batches(self.cursor), batches):
            self.take(batch)
        self.cursor = after_restart(self.cursor, self.capture)
        self.capture.close()
        self.capture = self.open()

    def teardown(self) -> None:
        if hasattr(self, "capture"):
            self.read_all()
            assert sorted(self.found) == sorted(self.committed)
            self.capture.close()
            for writer in self.writers:
                writer.close()


@pytest.mark.contract
def test_any_interleaving_is_read_once_and_in_order_of_position(installation: str) -> None:
    run_state_machine_as_test(
        type("Run", (Interleaving,), {"dsn": installation}),
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class Writer:
    """
    Commits and rolls back events, numbered per key under the key's lock, until it is stopped.
    """

    def __init__(self, dsn: str, chance: random.Random, enough: threading.Event) -> None:
        self._dsn, self._chance, self._enough = dsn, chance, enough
        self.committed: list[str] = []

    def run(self) -> None:
        with psycopg.connect(self._dsn) as conn:
            while not self._enough.is_set():
                self._one_transaction(conn)

    def _one_transaction(self, conn: Connection) -> None:
        batch: list[Event] = []
        for key in sorted(self._chance.sample(KEYS, self._chance.randint(1, 2))):
            batch += locked(conn, key, self._chance.choice([1, 1, 1, 2, 30, 200]))
        if self._chance.random() < 0.3:
            self._enough.wait(self._chance.random() * 0.02)
        if self._chance.random() < 0.25:
            conn.rollback()
        else:
            conn.commit()
            self.committed += [event.id for event in batch]


KEYS = ["k0", "k1", "k2", "k3", "k4"]


def locked(conn: Connection, key: str, rows: int) -> list[Event]:
    """Write events of one key, numbered under the lock that serialises it."""
    row = conn.execute(
        "UPDATE counters SET n = n + %s WHERE key = %s RETURNING n", [rows, key]
    ).fetchone()
    last = row[0] if row else 0
    events = [event("t", number, key=key) for number in range(last - rows, last)]
    write(conn, *events)
    return events


def test_concurrent_writers_are_read_once_and_each_key_in_the_order_of_its_lock(dsn: str) -> None:
    seconds, seed = 4.0, 7
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS counters (key text PRIMARY KEY, n int NOT NULL)")
        conn.execute("TRUNCATE counters")
        conn.execute("INSERT INTO counters SELECT unnest(%s::text[]), 0", [KEYS])
    enough = threading.Event()
    # Seeded, so that runs can be repeated; it is not for secrets.
    writers = [Writer(dsn, random.Random(seed + n), enough) for n in range(4)]
    found: list[tuple[str, str, int]] = []

    def take(capture: TableCapture, cursor: Place) -> Place:
        for batch in capture.batches(cursor):
            cursor = batch.cursor
            found.extend((row[1], row[4].decode(), int(row[5])) for row in batch.rows)
        return cursor

    with ThreadPoolExecutor(4) as pool, capturing(dsn, rows=400) as capture:
        tasks = [pool.submit(writer.run) for writer in writers]
        cursor: Place = Cursor()
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            cursor = take(capture, cursor)
        enough.set()
        for task in tasks:
            task.result(patient(30))
        take(capture, after_restart(cursor, capture))
    committed = [id_ for writer in writers for id_ in writer.committed]
    assert len(committed) > 500
    assert sorted(id_ for id_, _, _ in found) == sorted(committed)
    for key in KEYS:
        numbers = [number for _, of, number in found if of == key]
        assert all(after > before for before, after in pairwise(numbers)), key


def test_a_statement_under_way_is_ended_from_another_thread(dsn: str) -> None:
    with capturing(dsn) as capture, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(capture._conn.execute, "SELECT pg_sleep(30)")
        until(lambda: busy(dsn), within=10, what="the statement under way")
        capture.interrupt()
        with pytest.raises(psycopg.errors.QueryCanceled):
            slow.result(patient(10))


def busy(dsn: str) -> Any:
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(30)'"
            " AND pid <> pg_backend_pid()"
        ).fetchone()
