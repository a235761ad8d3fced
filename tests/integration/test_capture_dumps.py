"""Rows of a dump and servers that cannot be read are noticed."""

import re
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.postgres.programs import installation as installation_of
from relay.errors import Refused
from relay.postgres.capture.lag import waiting
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.wal import Timing
from relay.rules.places.progress import Cursor
from tests.support.capturing import LARGE, append, append_range, capturing, read, sessions
from tests.support.crews import new_role
from tests.support.relaying import installed


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
    with new_role(dsn) as (role, own):
        with psycopg.connect(dsn) as conn:
            conn.execute(f"GRANT USAGE ON SCHEMA outbox TO {role}".encode())
            conn.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA outbox TO {role}".encode())
            append(conn, 1)
        with capturing(own) as capture:
            assert read(capture, Cursor())[0] == [1]
