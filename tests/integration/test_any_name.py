"""Any name, encoding or setting of the caller works, and nobody else loses rights."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from dedup.inbox import schema as inbox_schema
from dedup.inbox.inbox import Inbox
from dedup.rules.identity import Identity
from dovecote.devstack import Stack
from dovecote.push.store import schema as push_schema
from dovecote.push.store.tables import Tables
from outbox import BadSettings, Event, schema, write
from outbox.postgres.session import connect
from outbox.schema import Roles, steps
from outbox.schema.capture import use_table, use_wal
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor
from tests import old_schemas
from tests.support.commands import init
from tests.support.crews import new_role

NEWEST = schema.migrations()[-1].version

_NAMES = [
    "$leaf$", "$schema$", "$name$", "$$", "$", "$dovecote$", "$dovecote_1$", "$append$ $function$",
    "$_0$", "$leaf_0$ $_1$", "it's", "back\\slash", "{role}", "{steps}", "{name}", "a:b",
]  # fmt: skip

_ODD = (
    "-c standard_conforming_strings=off -c array_nulls=off -c quote_all_identifiers=on"
    " -c transform_null_equals=on -c escape_string_warning=off -c DateStyle=German"
    " -c bytea_output=escape -c IntervalStyle=sql_standard"
)


def two(topic: str = "orders") -> list[Event]:
    """
    Return events with few fields and with more; some optional fields are absent, some are set.
    """
    return [
        Event(topic=topic, type="T", key="k", value="one"),
        Event(
            topic=topic, type="T", key="k", value="two", subject="NULL", headers=[("a", b"\\b")]
        ),
    ]


def read(dsn: str, name: str) -> list[tuple[str | None, str | None]]:
    """Return the subjects and content types that a relay reads there."""
    capture = TableCapture(dsn, name, batch_rows=100, batch_bytes=100_000)
    with closing(capture):
        capture.origin()
        rows = next(capture.batches(Cursor())).rows
    return [(row[8], row[9]) for row in rows]


def works(dsn: str, name: str, *, writer: str = "") -> None:
    """Check that the outbox in schema `name` can be written to and read."""
    with psycopg.connect(writer or dsn) as conn:
        write(conn, *two(), schema=name)
        write(conn, two()[1], schema=name)
    found = read(dsn, name)
    assert [subject for subject, _ in found] == [None, "NULL", "NULL"]
    use_wal(dsn, name)
    with psycopg.connect(writer or dsn) as conn:
        write(conn, *two(), schema=name)
        write(conn, two()[1], schema=name)
    use_table(dsn, name)
    with connect(dsn) as conn:
        conn.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )


@pytest.mark.parametrize("name", _NAMES)
def test_no_name_of_a_schema_ends_what_it_stands_in(database: str, name: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn, name)
        inbox_schema.install(conn, f"{name} inbox")
        inbox_schema.require(conn, f"{name} inbox")
        push_schema.install(conn, f"{name} push")
    works(database, name)
    with psycopg.connect(database) as conn:
        assert Inbox("group", f"{name} inbox").take(conn, Identity("/s", "id", 1)) is None
    with closing(Tables(database, f"{name} push")) as tables:
        tables.require()


@pytest.mark.parametrize("name", _NAMES)
def test_migration_tools_install_it_by_any_name_and_for_any_role(database: str, name: str) -> None:
    role = f"{name} {uuid4().hex[:8]} $capture$ {{schema}}"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
        try:
            statement = steps.install(NEWEST, name, roles=Roles([role], [role]))
            for _ in range(2):
                conn.execute(statement.encode())
            schema.require(conn, name)
            conn.execute(steps.uninstall(name).encode())
            assert schema.version(conn, name) == 0
            conn.execute(schema.script(name, roles=Roles([role], [role])).encode())
            schema.require(conn, name)
        finally:
            conn.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            conn.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.fixture(params=["LATIN1", "WIN1251", "EUC_JP", "EUC_TW", "EUC_KR"])
def encoded(request: pytest.FixtureRequest, stack: Stack) -> Iterator[tuple[str, str]]:
    """Yield a database of another encoding, and a name that needs it."""
    names = {"LATIN1": "ünïcode", "WIN1251": "заказы", "EUC_JP": "注文", "EUC_KR": "주문"}
    name = f"enc_{uuid4().hex[:12]}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C'"
            " TEMPLATE template0".encode()
        )
        try:
            yield (
                make_conninfo(stack.postgres.dsn, dbname=name),
                names.get(request.param, "outbox"),
            )
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_a_database_may_have_any_encoding_that_has_characters(encoded: tuple[str, str]) -> None:
    dsn, name = encoded
    done = init("--dsn", dsn, "--schema", name)
    assert (done.returncode, done.stderr) == (0, "")
    # Like services that do not mention the encoding; Python itself does not know EUC_TW.
    own = make_conninfo(dsn, client_encoding="UTF8") if name == "outbox" else dsn
    works(dsn, name, writer=own)
    with psycopg.connect(own) as conn:
        other = f"{name} 2"
        schema.install(conn, other)
        inbox_schema.install(conn, f"{name} inbox")
    works(dsn, other, writer=own)


def test_a_client_may_say_nothing_of_its_encoding(database: str) -> None:
    done = init("--dsn", database, "--schema", "ünïcode", PGCLIENTENCODING="SQL_ASCII")
    assert (done.returncode, done.stderr) == (0, "")
    ascii_only = make_conninfo(database, client_encoding="SQL_ASCII")
    works(database, "ünïcode", writer=ascii_only)
    with psycopg.connect(ascii_only) as conn:
        schema.install(conn, "ünï")
    works(ascii_only, "ünï")


def test_the_settings_of_a_session_change_nothing_of_what_is_written(database: str) -> None:
    odd = make_conninfo(database, options=_ODD)
    with psycopg.connect(odd) as conn:
        schema.install(conn)
        inbox_schema.install(conn)
        conn.execute(steps.install(NEWEST, "stepped").encode())
    with psycopg.connect(database) as conn:
        schema.install(conn, "plain")
    for name in ("outbox", "stepped", "plain"):
        works(odd, name, writer=odd)
    with psycopg.connect(odd) as conn:
        assert conn.execute("SELECT outbox.parked_lanes(1)").fetchone() == ([],)
        conn.execute("SELECT outbox.drained(ARRAY['5'::xid8], ARRAY[NULL::bytea])")


def test_the_settings_of_a_role_change_nothing_of_what_our_sessions_read(database: str) -> None:
    values = [b"\0\xff", None, b"", b'{"NULL"}', b"\\"]
    moment, span = datetime(2026, 11, 26, 1, 2, 3, 4, UTC), timedelta(days=-1, seconds=1)
    query = "SELECT %s::bytea[], %s::timestamptz, %s::interval"
    with connect(make_conninfo(database, options=_ODD)) as conn:
        # As the session with the role asks: values go in and out as text.
        conn.cursor_factory = psycopg.ClientCursor
        assert conn.execute(query, [values, moment, span]).fetchone() == (values, moment, span)


@pytest.mark.parametrize("place", ["public", "app"])
def test_nobody_else_loses_a_right(database: str, place: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA IF NOT EXISTS {place}".encode())
        conn.execute(f"GRANT USAGE ON SCHEMA {place} TO PUBLIC".encode())
        objects = (
            f"CREATE TABLE {place}.orders (id int); GRANT SELECT ON {place}.orders TO PUBLIC",
            f"CREATE FUNCTION {place}.tax(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            f"CREATE TYPE {place}.kind AS ENUM ('a')",
            f"CREATE VIEW {place}.seen AS SELECT 1 AS a",
            f"CREATE SEQUENCE {place}.numbers",
        )
        for create in objects:
            conn.execute(create.encode())
            kind, what = create.partition(";")[0].split()[1:3]
            what = what.partition("(")[0]
            with conn.transaction(force_rollback=True):
                for part in ("outbox", "inbox", "push"):
                    refused = init("--dsn", database, "--schema", place, part=part)
                    assert refused.returncode == 2
                    assert f"schema '{place}' holds what others use (" in refused.stderr
                    assert f"{kind.lower()} {what}" in refused.stderr
                for statement in (steps.install(NEWEST, place), schema.script(place)):
                    with (
                        pytest.raises(
                            psycopg.errors.ObjectNotInPrerequisiteState, match="what others use"
                        ),
                        conn.transaction(),
                    ):
                        conn.execute(statement.encode())
            drop = f"DROP {kind} {place}.{what.rpartition('.')[2]}"
            conn.execute(drop.encode())
        conn.execute(objects[0].encode())
        with pytest.raises(BadSettings, match="others"):
            schema.install(conn, place)
        assert schema.version(conn, place) == 0


def test_what_others_put_into_it_later_keeps_its_rights_in_an_upgrade(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(old_schemas.script(old_schemas.OUTBOX).encode())
        conn.execute(
            "GRANT USAGE ON SCHEMA outbox TO PUBLIC; CREATE TABLE outbox.orders (id int);"
            " GRANT SELECT ON outbox.orders TO PUBLIC; GRANT SELECT ON outbox.events_1 TO PUBLIC;"
            " GRANT USAGE ON outbox.events_position_seq TO PUBLIC"
        )
        schema.install(conn)
    with new_role(database) as (_, own), psycopg.connect(own) as other:
        assert other.execute("SELECT * FROM outbox.orders").fetchall() == []
        for query in (
            "TABLE outbox.events_1",
            "SELECT nextval('outbox.events_position_seq')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), other.transaction():
                other.execute(query)


def test_sql_for_one_that_is_there_says_so_and_of_one_without_data_too(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(schema.script().encode())
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=r"--since \d+"):
            conn.execute(schema.script().encode())
        conn.execute("TRUNCATE outbox.migrations")
        for statement in (schema.script(), steps.install(NEWEST)):
            with pytest.raises(
                psycopg.errors.ObjectNotInPrerequisiteState, match="restored without its data"
            ):
                conn.execute(statement.encode())
