"""Committed events are read from the table once, whatever the order of transactions."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor
from relay.rules.places.snapshot import Snapshot
from tests.support.capturing import LARGE, append, append_range, capturing, read, sessions
from tests.support.relaying import installed
from tests.support.waiting import patient, until


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
