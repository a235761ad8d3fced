"""Rows stay that another capture, outbox, role or version needs."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from psycopg import Connection

from outbox import schema, write
from outbox.schema import capture
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.lease import role_of, try_acquire
from relay.rules.places.progress import Cursor, Place
from tests import old_schemas
from tests.support.crews import new_role
from tests.support.relaying import event, installed
from tests.support.retaining import LEAF, Shop, append, held, shop
from tests.support.rows import numbers
from tests.support.waiting import patient, until


def test_captured_from_the_log_the_table_is_emptied_of_what_the_log_has_passed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(database)
    set_mode = capture._set_mode

    with (
        psycopg.connect(database) as before,
        psycopg.connect(database) as late,
        try_acquire(database, [role_of("outbox", "other")], 30) as lease,
    ):
        append(before, 0)
        before.commit()

        def set_later(conn: Connection, name: str, *, wal: bool) -> None:
            # The slot exists, and writers do not know of it yet.
            append(late, LEAF)
            set_mode(conn, name, wal=wal)

        monkeypatch.setattr("outbox.schema.capture._set_mode", set_later)
        capture.use_wal(database, "outbox")
        with closing(
            SwitchingCapture(
                database, "outbox", batch_rows=1000, batch_bytes=10**8, timing=Timing(10, 60)
            )
        ) as log:
            assert lease is not None
            relay = Shop(database, lease.conn, log)
            relay.cursor = log.resume(None)

            def published(count: int) -> bool:
                relay.publish()
                relay.beat()
                return len(relay.found) >= count

            until(lambda: published(LEAF), within=20, what="the table before the slot")
            relay.beat(3)
            assert held(database) == {0: LEAF}
            late.commit()
            # Room is made that the log has too, and that contains no event.
            until(lambda: published(2 * LEAF), within=20, what="rows of a late writer")
            append(before, 2 * LEAF, 1)
            before.commit()
            until(lambda: published(2 * LEAF + 1) and not held(database), within=20, what="room")
            append(before, 2 * LEAF + 1, 1)
            before.commit()
            until(lambda: published(2 * LEAF + 2), within=20, what="what came behind the TRUNCATE")
            assert relay.found == list(range(2 * LEAF + 2))


def test_what_a_slot_made_with_a_gap_may_have_passed_over_stays(database: str) -> None:
    installed(database)
    with (
        psycopg.connect(database) as writer,
        try_acquire(database, [role_of("outbox", "other")], 30) as lease,
    ):
        assert lease is not None
        append(writer, 0)
        writer.commit()
        capture.use_wal(database, "outbox", accept_gap=True)
        timing = Timing(10, 60)
        with closing(
            SwitchingCapture(database, "outbox", batch_rows=1000, batch_bytes=10**8, timing=timing)
        ) as log:
            relay = Shop(database, lease.conn, log)
            relay.cursor = log.resume(None)
            for number in range(3):
                append(writer, LEAF + number, 1)
                writer.commit()

                def published(count: int = number + 1) -> bool:
                    relay.publish()
                    relay.beat()
                    return len(relay.found) >= count

                until(published, within=20, what="an event behind the gap")
            assert relay.found == [LEAF, LEAF + 1, LEAF + 2]
            assert held(database) == {0: LEAF}


def test_another_outbox_of_the_database_is_left_alone(database: str) -> None:
    installed(database)
    with psycopg.connect(database) as conn:
        schema.install(conn, 'other "one"')
        append(conn, 0)
        append(conn, 0, name='other "one"')
    with shop(database) as relay:
        relay.publish()
        relay.beat(4)
    assert held(database) == {}
    assert held(database, 'other "one"') == {0: LEAF}
    with shop(database, name="other", schema_name='other "one"') as relay:
        relay.publish()
        relay.beat(4)
    assert held(database, 'other "one"') == {}


def test_with_one_snapshot_for_a_whole_transaction_nothing_is_emptied(writer: Connection) -> None:
    append(writer, 0)
    writer.commit()
    writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="read committed"):
        writer.execute("SELECT outbox.truncate_leaf(0, '0')")


@pytest.fixture
def reader(dsn: str) -> Iterator[str]:
    """The database for a role that may write events, and read them."""
    with new_role(dsn) as (role, own):
        with psycopg.connect(dsn) as conn:
            schema.install(conn, roles=schema.Roles(writers=[role]))
            read = "outbox.events, outbox.migrations, outbox.reading"
            conn.execute(f"GRANT SELECT ON {read} TO {role}".encode())
        yield own


def test_a_writer_can_make_nobodys_rows_vanish(reader: str) -> None:
    with psycopg.connect(reader, autocommit=True) as conn:
        with conn.transaction():
            write(conn, event("t", 1))
        for call in (
            "truncate_leaf(0, '0')",
            "write_to_leaf(1)",
            "confirm('shop', '9:9:', NULL, 9)",
            "leaves()",
            "unpublished('outbox.events')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"SELECT outbox.{call}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("TRUNCATE outbox.events_0")


def test_a_relay_without_the_rights_goes_on_and_says_that_rows_stay(
    dsn: str, writer: Connection, reader: str, caplog: pytest.LogCaptureFixture
) -> None:
    role = psycopg.conninfo.conninfo_to_dict(reader)["user"]
    with psycopg.connect(dsn) as owner:
        owner.execute(f"GRANT EXECUTE ON FUNCTION outbox.hold, outbox.holding TO {role}".encode())
    with shop(reader) as relay:
        append(writer, 0)
        writer.commit()
        relay.publish()
        relay.beat(3)
        assert relay.found == list(range(LEAF))
        assert "published rows stay: permission denied for function confirm" in caplog.text
        assert relay.delayed("forbidden")
    assert held(dsn) == {0: LEAF}


LEAVES = next(step.version for step in schema.migrations() if step.name == "leaves")


def before_leaves(dsn: str) -> None:
    """Install the outbox as it was before there were leaves."""
    with psycopg.connect(dsn) as conn:
        conn.execute(old_schemas.script(LEAVES - 1).encode())


def test_rows_from_before_the_upgrade_stay_until_they_are_published_and_keep_their_order(
    database: str,
) -> None:
    before_leaves(database)
    with psycopg.connect(database) as writer:
        append(writer, 0)
        writer.commit()
        assert "leaves" in [step.name for step in schema.install(writer)]
        append(writer, LEAF)
    with shop(database) as relay:
        relay.beat(2)
        assert sum(held(database).values()) == 2 * LEAF
        relay.publish()
        assert relay.found == list(range(2 * LEAF))
        relay.beat(2)
        assert held(database) == {}


def test_an_upgrade_under_writers_and_a_relay_loses_and_reorders_nothing(database: str) -> None:
    before_leaves(database)
    enough = threading.Event()
    written = 0

    def write_on() -> None:
        nonlocal written
        with psycopg.connect(database) as conn:
            while not enough.is_set():
                append(conn, written, 5)
                conn.commit()
                written += 5

    with psycopg.connect(database) as old, ThreadPoolExecutor(1) as pool:
        # A relay of the version before already has its connection and its prepared statements.
        old.execute(
            "INSERT INTO outbox.migrations (version, name)"
            " SELECT n, 'pretended' FROM generate_series(%s::int, %s::int) AS n",
            [LEAVES, schema.migrations()[-1].version],
        )
        old.commit()
        with closing(
            TableCapture(database, "outbox", batch_rows=1000, batch_bytes=10**8)
        ) as capture:
            old.execute("DELETE FROM outbox.migrations WHERE version >= %s", [LEAVES])
            old.commit()
            writing = pool.submit(write_on)
            cursor: Place = Cursor()
            found = list[int]()

            def read_on(until_row: Callable[[], int]) -> bool:
                nonlocal cursor
                for batch in capture.batches(cursor):
                    found.extend(numbers(batch.rows))
                    cursor = batch.cursor
                return len(found) > until_row()

            until(lambda: read_on(lambda: 200), within=30, what="events before the upgrade")
            with psycopg.connect(database) as conn:
                upgrading = pool_of_its_own(lambda: schema.install(conn))
                while not upgrading():
                    read_on(lambda: 0)
            mark = written
            until(lambda: read_on(lambda: mark + 200), within=30, what="events after it")
            enough.set()
            writing.result(patient(10))
            until(lambda: read_on(lambda: written - 1), within=30, what="the last event")
    assert found == list(range(written))
    assert set(held(database)) == {-1, 0}


def pool_of_its_own(task: Callable[[], object]) -> Callable[[], bool]:
    """
    Begin a task in a thread; return a function that tells whether it is done, or raises its error.
    """
    pool = ThreadPoolExecutor(1)
    running = pool.submit(task)

    def done() -> bool:
        if running.done():
            pool.shutdown()
            running.result()
            return True
        return False

    return done


def test_an_upgrade_that_would_make_writers_wait_for_long_is_refused(database: str) -> None:
    before_leaves(database)
    with psycopg.connect(database) as writer, psycopg.connect(database) as owner:
        append(writer, 0, 1)
        with pytest.raises(psycopg.errors.LockNotAvailable, match="nothing was changed"):
            schema.install(owner)
        owner.rollback()
        assert schema.version(owner) == LEAVES - 1
        writer.commit()
        schema.install(owner)
        schema.require(owner)
