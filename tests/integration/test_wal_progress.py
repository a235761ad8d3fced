"""Progress in the log is confirmed, and a change of the capture passes no event over."""

import re
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from dovecote.devstack import Stack
from outbox import schema, write
from outbox.errors import DovecoteError
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import use_wal
from relay.postgres.capture.catalog import look
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor, LogPosition, Place, Progress, at
from relay.rules.server.leaves import TABLES
from tests import old_schemas
from tests.support.fix_stack import new_database
from tests.support.relaying import event, installed
from tests.support.waiting import until
from tests.support.wal_capturing import (
    MODE,
    append,
    capturing,
    confirmed,
    progress_at,
    read,
    read_on,
    said,
    seen_by,
    write_numbers,
)


@pytest.fixture
def dsn(database: str) -> str:
    """A database whose outbox is written to the log."""
    return installed(database, "wal")


def test_only_what_is_in_committed_progress_is_confirmed(dsn: str) -> None:
    before = confirmed(dsn)
    with capturing(dsn) as capture:
        append(dsn, 1, 2)
        found, place = read(capture, capture.resume(None), 2, confirm=False)
        assert found == [1, 2]
        # The server has heard from us since, and more than once.
        for number in range(3):
            append(dsn, number)
            _, place = read(capture, place, 1, confirm=False)
            capture.stay()
        assert confirmed(dsn) == before
    with capturing(dsn) as capture:
        found, place = read(capture, capture.resume(None), 5)
        assert found == [1, 2, 0, 1, 2]
        assert isinstance(place, LogPosition)
        until(said(capture, place, dsn, place.lsn), within=10, what="the confirmation")


def test_the_slot_of_an_idle_outbox_moves_on(dsn: str, stack: Stack) -> None:
    with (
        capturing(dsn, heartbeat=0.05) as capture,
        new_database(stack) as elsewhere,
        psycopg.connect(elsewhere, autocommit=True) as conn,
    ):
        place = capture.resume(None)
        conn.execute("CREATE TABLE busy (t text)")
        conn.execute("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        end, durable = seen_by(dsn).end, confirmed(dsn)

        def moved() -> bool:
            nonlocal place, durable
            for batch in capture.batches(place):
                place = batch.cursor
                assert isinstance(place, LogPosition)
                # In the relay's order: progress first.
                assert confirmed(dsn) <= durable
                if batch.keep:
                    durable = place.lsn
                    capture.confirm(place)
            return confirmed(dsn) >= end

        until(moved, within=20, what="a slot that moves on")


def test_rows_from_before_the_slot_are_published_first(database: str) -> None:
    dsn = installed(database)
    append(dsn, 1, 2)
    with psycopg.connect(dsn) as late:
        write_numbers(late, 3)
        late.rollback()
    use_wal(dsn, "outbox")
    append(dsn, 4)
    with capturing(dsn) as capture:
        found, place = read(capture, capture.resume(None), 3)
        assert found == [1, 2, 4]
        assert isinstance(place, LogPosition)
        # The next active relay goes on in the log.
        append(dsn, 5)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress_at(place, capture)), 1)[0] == [5]


def test_a_relay_of_the_table_that_had_gone_on_doubles_nothing(database: str) -> None:
    dsn = installed(database)
    append(dsn, 1, 2)
    use_wal(dsn, "outbox")
    with psycopg.connect(dsn) as conn:
        # As it was when the slot was just made: writers did not know of it yet.
        conn.execute("UPDATE outbox.reading SET state = 'table'")
        for number in (3, 4, 5):
            conn.execute(
                'INSERT INTO outbox.events ("time", id, topic, type, source, value)'
                " VALUES (now(), gen_random_uuid(), 't', 'T', 's', %s)",
                [str(number).encode()],
            )
            conn.commit()
    with closing(TableCapture(dsn, "outbox", batch_rows=2, batch_bytes=10**6)) as table:
        old: Place = Cursor()
        *_, last = table.batches(old)
        old = last.cursor
        progress = Progress.decode(at("shop", table.origin(), old).encode())
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE outbox.reading SET state = 'wal'")
    append(dsn, 6)
    with capturing(dsn) as capture:
        found, _ = read_on(capture, capture.resume(progress), dsn)
        assert found == [6]


def test_a_publication_from_before_there_were_leaves_gets_them(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(old_schemas.script(3).encode())
        use_wal(database, "outbox")
        schema.install(conn)
        published = conn.execute("SELECT tablename FROM pg_publication_tables").fetchall()
        assert sorted(name for (name,) in published) == sorted(TABLES)
        append(database, 1)
        conn.execute(MODE.replace("%", "false").encode())
        # If there is no leaf with that number, rows go into the parent.
        for leaf in range(len(TABLES)):
            conn.execute("SELECT outbox.write_to_leaf(%s)", [leaf])
            append(database, leaf + 2)
        rows = conn.execute("SELECT tableoid::regclass::text FROM outbox.events").fetchall()
        assert len(set(rows)) == len(TABLES)
        with capturing(database) as capture:
            assert read(capture, capture.resume(None), 6)[0] == [1, 2, 3, 4, 5, 6]


OF_A_DUMP = (
    'INSERT INTO outbox.events (xid, id, "time", topic, type, source)'
    " VALUES ('9000000000', gen_random_uuid(), now(), 't', 'T', '/s')"
)


@pytest.mark.parametrize("to", ["wal", "table"])
def test_the_capture_is_not_changed_while_rows_of_a_dump_wait(database: str, to: str) -> None:
    changes: dict[str, Callable[[str, str], object]] = {
        "wal": use_wal,
        "table": outbox_capture.use_table,
    }
    change = changes[to]
    installed(database)
    if to == "table":
        use_wal(database, "outbox")
    with psycopg.connect(database) as conn:
        conn.execute(OF_A_DUMP)
        conn.commit()
        before = look(conn, "outbox").state
        with pytest.raises(DovecoteError, match=r"9000000000.*the capture was not chan") as said:
            change(database, "outbox")
        assert look(conn, "outbox").state == before
        conn.rollback()
        (remedy,) = re.findall("`(UPDATE .*)`", str(said.value))
        conn.execute(remedy.encode())
        conn.commit()
        change(database, "outbox")
        assert look(conn, "outbox").state != before


def test_a_relay_in_the_log_is_not_kept_out_by_rows_that_the_log_had(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn, event("t", 1))
        conn.commit()
        with capturing(dsn) as capture:
            _, place = read(capture, capture.resume(None), 1)
            kept = progress_at(place, capture)
        conn.execute(OF_A_DUMP)
        conn.commit()
        with capturing(dsn) as capture:
            assert capture.resume(kept) == place
