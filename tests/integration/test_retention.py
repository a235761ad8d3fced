"""Published rows are removed by whole leaves; nothing else is, and nobody waits for it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import Connection

from outbox import write
from relay.rules.places.progress import Cursor
from relay.rules.server.leaves import Leaf
from tests.support.relaying import event
from tests.support.retaining import LEAF, append, held, shop
from tests.support.waiting import patient, until


def test_published_rows_go_and_leave_no_dead_ones_behind(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay:
        for lap in range(6):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
        assert relay.found == list(range(6 * LEAF))
        assert held(dsn) == {}
        assert relay.metric("rotations_total") == 6
        assert relay.metric("rotated_bytes_total") > 6 * 1_000_000
        assert relay.metric("leaves") == 0
        assert relay.metric("last_rotation_timestamp_seconds") == pytest.approx(
            time.time(), abs=60
        )
        dead = writer.execute(
            "SELECT sum(pg_stat_get_dead_tuples(oid)), sum(pg_total_relation_size(oid))"
            " FROM pg_class WHERE relname ~ '^events(_[0-9])?$' AND relkind = 'r'"
            " AND relnamespace = 'outbox'::regnamespace"
        ).fetchone()
        assert dead is not None
        assert dead[0] == 0
        assert dead[1] < 300_000


def test_what_is_not_published_stays(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay:
        append(writer, 0)
        writer.commit()
        relay.beat(3)
        assert held(dsn) == {0: LEAF}
        assert relay.delayed("unpublished")
        relay.publish()
        append(writer, LEAF, 1)
        writer.commit()
        relay.beat()
        assert held(dsn) == {1: 1}
        assert not relay.delayed("unpublished")


def test_a_long_open_transaction_elsewhere_delays_nothing(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay, psycopg.connect(dsn) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("CREATE TEMP TABLE mine AS SELECT pg_current_xact_id()")
        for lap in range(5):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
            assert held(dsn) == {}
        assert relay.found == list(range(5 * LEAF))
        assert relay.metric("rotations_total") == 5


def test_an_open_writer_keeps_its_leaf_and_nothing_else(
    dsn: str,
    writer: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.postgres.retention._PATIENCE", 0.0)
    with shop(dsn) as relay, psycopg.connect(dsn) as late:
        append(late, 1_000_000, 1)
        append(writer, 0)
        writer.commit()
        relay.publish()
        relay.beat(3)
        assert held(dsn) == {0: LEAF}
        assert relay.delayed("locked")
        assert f"by session {late.info.backend_pid}, no name" in caplog.text
        for lap in range(1, 9):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
            # The others take turns without it.
            assert held(dsn) == {0: LEAF}
        # A low position, a leaf that was passed long ago, a transaction that commits only now.
        late.commit()
        relay.beat()
        assert held(dsn) == {0: LEAF + 1}
        assert relay.delayed("unpublished")
        relay.publish()
        assert relay.found == [*range(9 * LEAF), 1_000_000]
        relay.beat()
        assert held(dsn) == {}


def test_no_writer_waits_for_a_rotation_that_has_to_wait(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay, psycopg.connect(dsn) as dump, psycopg.connect(dsn) as late:
        append(late, -1, 1)
        append(writer, 0)
        writer.commit()
        relay.publish()
        # Like pg_dump, from its beginning to its end.
        dump.execute("LOCK TABLE outbox.events IN ACCESS SHARE MODE")
        relay.beat()
        enough = threading.Event()

        def rotate() -> None:
            while not enough.is_set():
                relay.beat()

        with ThreadPoolExecutor(1) as pool:
            rotating = pool.submit(rotate)
            worst = 0.0
            # One that goes on in the leaf that rotation wants to empty, and one that begins
            # elsewhere.
            for number in range(300):
                for conn, commit in ((late, False), (writer, True)):
                    began = time.monotonic()
                    write(conn, event("t", LEAF + number))
                    worst = max(worst, time.monotonic() - began)
                    if commit:
                        conn.commit()
            enough.set()
            rotating.result(patient(10))
        assert worst < patient(1)
        assert relay.delayed("locked")
        assert sum(held(dsn).values()) == LEAF + 300
        dump.rollback()
        late.rollback()
        relay.publish()
        relay.beat()
        assert -1 not in held(dsn)
        assert sum(held(dsn).values()) <= 300


def test_a_backlog_larger_than_the_ring_stays_and_goes_when_it_is_published(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as relay:
        for lap in range(7):
            append(writer, lap * LEAF)
            writer.commit()
            relay.beat(2)
        assert sum(held(dsn).values()) == 7 * LEAF
        assert len(held(dsn)) == 4
        relay.publish()
        assert relay.found == list(range(7 * LEAF))
        relay.beat(2)
        assert held(dsn) == {}


def test_within_a_window_that_is_under_way_only_what_is_passed_goes(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as relay:
        for lap in range(3):
            append(writer, lap * LEAF)
            writer.commit()
            relay.beat(2)
        assert held(dsn) == {0: LEAF, 1: LEAF, 2: LEAF}
        relay.publish(batches=7)
        assert isinstance(relay.cursor, Cursor)
        assert relay.cursor.until is not None
        relay.beat()
        assert held(dsn) == {1: LEAF, 2: LEAF}
        relay.publish(batches=4)
        relay.beat()
        assert held(dsn) == {1: LEAF, 2: LEAF}
        relay.publish(batches=1)
        relay.beat()
        assert held(dsn) == {2: LEAF}
        relay.publish()
        assert relay.found == list(range(3 * LEAF))
        relay.beat()
        assert held(dsn) == {}


def test_a_relay_whose_progress_is_old_takes_nothing_that_came_after(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as zombie:
        append(writer, 0)
        writer.commit()
        zombie.publish()
        old = zombie.cursor
        append(writer, LEAF)
        writer.commit()
        zombie.retention.confirmed(old)
        zombie.beat(4)
        assert held(dsn) == {0: 2 * LEAF}


def test_a_session_that_is_not_the_one_that_began_rotates_nothing(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as relay, psycopg.connect(dsn, autocommit=True) as other:
        append(writer, 0)
        writer.commit()
        relay.publish()
        relay.beat()
        relay.retention.beat(other)
        assert held(dsn) == {0: LEAF}


def test_what_another_relay_of_the_outbox_has_not_published_stays(
    dsn: str,
    writer: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.postgres.retention._PATIENCE", 0.0)
    with shop(dsn) as one, shop(dsn, name="second") as second:
        append(writer, 0)
        writer.commit()
        one.publish()
        one.beat(3)
        assert held(dsn) == {0: LEAF}
        assert "DELETE FROM \"outbox\".relays WHERE name = 'second'" in caplog.text
        second.publish()
        second.beat()
        assert second.found == one.found
        assert held(dsn) == {}


def test_before_any_relay_has_said_how_far_it_is_nothing_goes(writer: Connection) -> None:
    append(writer, 0)
    writer.execute("SELECT outbox.write_to_leaf(1)")
    writer.commit()
    assert writer.execute("SELECT outbox.truncate_leaf(0, '0')").fetchone() == ("unpublished by ",)


@pytest.mark.parametrize("has_read", [False, True])
def test_a_leaf_that_another_shard_is_emptying_is_locked(
    dsn: str,
    writer: Connection,
    has_read: bool,  # noqa: FBT001  # the case itself
) -> None:
    lock = b"LOCK TABLE ONLY outbox.events_1 IN ACCESS EXCLUSIVE MODE"
    leaf = Leaf(1, heap_bytes=1, total_bytes=1, live_rows=0, written=False)
    with shop(dsn) as relay, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        if has_read:
            # Each waits for what the other has read, and Postgres sees the deadlock at once.
            relay.conn.execute("BEGIN")
            for session in (relay.conn, other):
                session.execute("SELECT FROM ONLY outbox.events_1")
        emptying = pool.submit(other.execute, lock)
        until(lambda: asks(writer, other), within=10, what="the lock to be asked for")
        assert relay.retention._empty(relay.conn, leaf) == "locked"
        relay.conn.execute("ROLLBACK")
        emptying.result(patient(10))


def asks(conn: Connection, session: Connection) -> bool:
    """Return whether a session has an exclusive lock, or waits for it."""
    row = conn.execute(
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND pid = %s",
        [session.info.backend_pid],
    ).fetchone()
    return row is not None and row[0] > 0


def test_rows_are_kept_as_long_as_asked_for(dsn: str, writer: Connection) -> None:
    with shop(dsn, keep=3600) as relay:
        for lap in range(2):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
        assert held(dsn) == {0: LEAF, 1: LEAF}
        assert relay.delayed("kept")
        writer.execute("UPDATE outbox.events_0 SET appended_at = now() - interval '61 minutes'")
        writer.commit()
        relay.publish()
        relay.beat()
        assert held(dsn) == {1: LEAF}
