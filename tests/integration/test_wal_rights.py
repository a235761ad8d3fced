"""The log is read with the rights that a role is granted, and a writer cannot forge it."""

import re

import psycopg
import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from outbox import schema
from outbox.errors import DovecoteError
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import use_wal
from relay.errors import Refused
from tests.support.crews import new_role
from tests.support.relaying import installed
from tests.support.wal_capturing import (
    MODE,
    append,
    capturing,
    drop_slot,
    read,
    secret,
    write_numbers,
)


@pytest.fixture
def dsn(database: str) -> str:
    """A database whose outbox is written to the log."""
    return installed(database, "wal")


def test_a_server_without_logical_decoding_is_named() -> None:
    folder = temporary_directory(server_user())
    with Postgres(
        folder, fsync=False, temporary=True, settings={"wal_level": "replica"}
    ) as server:
        dsn = installed(server.dsn)
        with pytest.raises(DovecoteError, match="wal_level = replica: set it to logical"):
            use_wal(dsn, "outbox")
        append(dsn, 1)


def test_a_writer_can_neither_read_the_prefix_nor_forge_an_event(dsn: str) -> None:
    with new_role(dsn) as (role, own):
        with psycopg.connect(dsn, autocommit=True) as conn:
            schema.install(conn, roles=schema.Roles(writers=[role]))
        append(own, 1)
        with psycopg.connect(own, autocommit=True) as conn:
            for query in (
                "SELECT prefix FROM outbox.capture",
                "SELECT pg_logical_slot_peek_binary_changes('x', NULL, NULL)",
                MODE.replace("%", "false"),
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(query.encode())
            shown = conn.execute("SELECT prosrc FROM pg_proc WHERE proname = 'append'").fetchall()
        assert secret(dsn) not in str(shown)
        with capturing(dsn) as capture:
            assert read(capture, capture.resume(None), 1)[0] == [1]
        assert secret(dsn).encode() not in plans(own)


def test_how_a_session_reads_backslashes_changes_nothing_of_an_event(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET standard_conforming_strings = off")
        with conn.transaction():
            write_numbers(conn, 1)
        with conn.transaction():
            write_numbers(conn, 2, 3)
        assert conn.execute(
            "SELECT outbox.drained(ARRAY[pg_current_xact_id()], ARRAY[NULL::bytea])"
        ).fetchone() == ([False],)
        assert conn.execute("SELECT outbox.parked_lanes(1)").fetchone() == ([],)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(None), 3)[0] == [1, 2, 3]


def plans(dsn: str) -> bytes:
    """Return the constants that Postgres shows a session in its plans."""
    shown: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.add_notice_handler(lambda notice: shown.append(notice.message_detail or ""))
        conn.execute("SET client_min_messages = log")
        conn.execute("SET debug_pretty_print = off")  # it breaks lines within numbers
        for kind in ("parse", "rewritten", "plan"):
            conn.execute(f"SET debug_print_{kind} = on".encode())
        conn.execute("SET plan_cache_mode = force_custom_plan")
        for _ in range(8):
            conn.execute("SELECT outbox.append('seen', NULL, 'v', 'T')")
            with conn.transaction():
                write_numbers(conn, 1, 2)
    constants = re.findall(r"\[((?:\s+-?\d+)+)\s+\]", "".join(shown))
    found = b"|".join(bytes(int(byte) % 256 for byte in each.split()) for each in constants)
    assert b"seen" in found
    return found


def test_a_relay_reads_the_log_with_the_rights_that_it_is_granted(database: str) -> None:
    installed(database)
    with (
        new_role(database, attributes="REPLICATION") as (role, own),
        psycopg.connect(database, autocommit=True) as conn,
    ):
        schema.install(conn, roles=schema.Roles(relays=[role]))
        use_wal(database, "outbox")
        append(database, 1)
        with capturing(own) as capture:
            assert read(capture, capture.resume(None), 1)[0] == [1]


def test_a_role_that_cannot_follow_the_log_is_named_and_its_relay_refused(database: str) -> None:
    installed(database)
    use_wal(database, "outbox")
    with (
        new_role(database, attributes="REPLICATION") as (role, own),
        psycopg.connect(database, autocommit=True) as conn,
    ):
        given = ["init", "outbox", "--dsn", database, "--relay-role", role]
        assert CliRunner().invoke(app, given).exit_code == 0
        conn.execute(f"ALTER ROLE {role} NOREPLICATION".encode())
        for more in ([], ["--capture", "wal"]):
            failed = CliRunner().invoke(app, [*given, *more])
            assert f'ALTER ROLE "{role}" REPLICATION' in str(failed.exception)
        append(database, 1)
        with (
            capturing(own) as capture,
            pytest.raises(Refused, match=f'`ALTER ROLE "{role}" REPLICATION`'),
        ):
            read(capture, capture.resume(None), 1)
        outbox_capture.use_table(database, "outbox")
        with pytest.raises(DovecoteError, match="the capture was not changed"):
            use_wal(database, "outbox")
        assert outbox_capture.installed(conn, "outbox").state == "leaving"


def test_a_role_without_replication_is_told_so(database: str) -> None:
    with new_role(database) as (role, own):
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(f'GRANT CREATE ON DATABASE "{conn.info.dbname}" TO {role}'.encode())
        with psycopg.connect(own) as conn:
            schema.install(conn)
        with pytest.raises(DovecoteError, match=f'ALTER ROLE "{role}" REPLICATION'):
            use_wal(own, "outbox")
        append(own, 1)
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(f"ALTER ROLE {role} REPLICATION".encode())
        use_wal(own, "outbox")
        append(own, 2)
        with capturing(own) as capture:
            assert read(capture, capture.resume(None), 2)[0] == [1, 2]
        drop_slot(database)
