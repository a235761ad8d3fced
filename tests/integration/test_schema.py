"""Installing the outbox: once, by whoever comes first, by us or by another migration tool."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from dedup.inbox import schema as inbox_schema
from dovecote.push.store import schema as push_schema
from outbox import BadSettings, Event, SchemaMissing, SchemaTooNew, schema, write
from outbox.schema.migrations import Migrations
from tests import old_schemas
from tests.support.commands import init
from tests.support.crews import new_role
from tests.support.fix_stack import new_database
from tests.support.waiting import patient

Make = Callable[[], str]


@pytest.fixture
def new(stack: Any) -> Iterator[Make]:
    """Creates databases, which are dropped at the end."""
    contexts = []

    def make() -> str:
        context = new_database(stack)
        contexts.append(context)
        return context.__enter__()

    yield make
    for context in contexts:
        context.__exit__(None, None, None)


def catalog(dsn: str, name: str = "outbox") -> list[tuple[Any, ...]]:
    """Return everything in a schema, as the server describes it."""
    columns = (
        "SELECT relname, relkind, attname, format_type(atttypid, atttypmod), attnotnull,"
        " attidentity, pg_get_expr(adbin, adrelid), obj_description(c.oid)"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND attnum > 0"
        " LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, attnum)"
        " WHERE relnamespace = quote_ident(%(name)s)::regnamespace ORDER BY relname, attnum"
    )
    constraints = (
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = quote_ident(%(name)s)::regnamespace ORDER BY conname, conrelid"
    )
    functions = (
        "SELECT pg_get_functiondef(oid), proacl::text FROM pg_proc"
        " WHERE pronamespace = quote_ident(%(name)s)::regnamespace ORDER BY 1"
    )
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = %(name)s ORDER BY 1"
    sequences = "SELECT sequencename, cache_size FROM pg_sequences WHERE schemaname = %(name)s"
    queries = (columns, constraints, functions, indexes, sequences)
    ledger = sql.SQL("SELECT version, name FROM {}.migrations ORDER BY version")
    with psycopg.connect(dsn) as conn:
        rows = [row for query in queries for row in conn.execute(query, {"name": name})]
        return rows + conn.execute(ledger.format(sql.Identifier(name))).fetchall()


def test_installing_twice_changes_nothing(database: str) -> None:
    with psycopg.connect(database) as conn:
        first = schema.install(conn)
        before = catalog(database)
        assert [step.version for step in first] == [step.version for step in schema.migrations()]
        assert schema.install(conn) == []
        assert schema.version(conn) == first[-1].version
    assert catalog(database) == before


def test_two_installations_at_once_take_turns(database: str) -> None:
    start = threading.Barrier(4)

    def install() -> int:
        with psycopg.connect(database) as conn:
            start.wait(patient(10))
            return len(schema.install(conn))

    with ThreadPoolExecutor(4) as pool:
        applied = [task.result(patient(30)) for task in [pool.submit(install) for _ in range(4)]]
    assert sorted(applied) == [0, 0, 0, len(schema.migrations())]


def test_the_printed_sql_gives_the_same_catalog(new: Make) -> None:
    ours, theirs = new(), new()
    done = init("--dsn", ours)
    assert (done.returncode, done.stderr) == (0, "")
    printed = init("--print-sql")
    assert (printed.returncode, printed.stderr) == (0, "")
    with psycopg.connect(theirs) as conn:
        conn.execute(printed.stdout.encode())
    assert catalog(theirs) == catalog(ours)
    assert init("--dsn", theirs).stdout.startswith("the outbox is up to date")


def test_the_printed_sql_runs_statement_by_statement(database: str) -> None:
    # As a migration tool without one big transaction would.
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(schema.script().encode())
        write_one(conn)


def write_one(conn: psycopg.Connection) -> None:
    with conn.transaction():
        write(conn, Event(topic="t", type="T"))


def test_the_printed_sql_since_a_version_is_what_came_after(database: str) -> None:
    newest = schema.migrations()[-1].version
    with psycopg.connect(database) as conn:
        schema.install(conn)
    printed = init("--print-sql", "--since", str(newest)).stdout
    before = catalog(database)
    with psycopg.connect(database) as conn:
        conn.execute(printed.encode())
    assert catalog(database) == before
    assert "CREATE TABLE outbox.events" not in printed


@pytest.mark.parametrize("since", [11, 13])
def test_the_printed_sql_since_a_version_is_refused_by_another(database: str, since: int) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(old_schemas.script(12).encode())
        says = rf"after version {since}, and the schema is at version 12.*--since 12"
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=says):
            conn.execute(schema.script(since=since).encode())
        conn.execute(schema.script(since=12).encode())
        schema.require(conn)


def test_what_is_parked_keeps_its_order_and_its_commands_when_they_get_tickets(
    database: str,
) -> None:
    parked = (
        'INSERT INTO outbox.parked (name, number, position, id, "time", topic, type, source, code,'
        " reason, holds) SELECT 'a', n, n, gen_random_uuid(), now(), 't', 'T', 's', 'C', 'r', true"
        " FROM unnest(ARRAY[7, 9, (1::bigint << 40) + 2]) AS n"
    )
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(old_schemas.script(9).encode())
        conn.execute(parked.encode())
        conn.execute(
            "INSERT INTO outbox.parked_commands (name, action, parked, up_to)"
            " VALUES ('a', 'drop', 9, 9)"
        )
        conn.execute(schema.script(since=9).encode())
        conn.execute(parked.replace("7, 9, (1::bigint << 40) + 2", "8").encode())
        found = conn.execute("SELECT number, ticket FROM outbox.parked ORDER BY ticket").fetchall()
        assert found == [(7, 7), (9, 9), ((1 << 40) + 2, 10), (8, 11)]
        (command,) = conn.execute("SELECT ticket, up_to FROM outbox.parked_commands").fetchall()
        assert command == (9, 9)


def test_installing_is_part_of_the_callers_transaction(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("SELECT 1")
        schema.install(conn)
        conn.rollback()
        assert schema.version(conn) == 0
        with pytest.raises(SchemaMissing, match="is not installed; run `dovecote init outbox`"):
            schema.require(conn)


def test_what_installs_a_missing_schema_names_it_unless_it_is_the_usual_one(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for module, part, other in (
            (schema, "outbox", "outboxx"),
            (inbox_schema, "inbox", "inboxx"),
            (push_schema, "push", "pushh"),
        ):
            usual = rf"run `dovecote init {part}`, or .* `dovecote init {part} --print-sql` shows$"
            with pytest.raises(SchemaMissing, match=usual):
                module.require(conn)
            named = rf"run `dovecote init {part} --schema {other}`, or .* --print-sql` shows$"
            with pytest.raises(SchemaMissing, match=named):
                module.require(conn, other)


def test_a_failed_step_leaves_nothing_behind(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schema.migrations()
    fails = schema.Migration(known[-1].version + 1, "fails", "SELECT 1 / 0;")
    monkeypatch.setattr(Migrations, "steps", lambda _: [*known, fails])
    with psycopg.connect(database, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            schema.install(conn)
        assert schema.version(conn) == 0
        assert conn.execute("SELECT to_regclass('outbox.migrations')").fetchone() == (None,)


@pytest.mark.parametrize("name", ["Out Box", 'quo"ted', "{schema}", "a.b", "ünïcode"])
def test_any_schema_name_will_do(database: str, name: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn, name)
        schema.require(conn, name)
        write(conn, Event(topic="t", type="T"), schema=name)
        write(conn, Event(topic="t", type="T"), Event(topic="t", type="T"), schema=name)
        count = sql.SQL("SELECT count(*) FROM {}.events").format(sql.Identifier(name))
        assert conn.execute(count).fetchone() == (3,)


def test_two_outboxes_of_one_database_do_not_mix(database: str) -> None:
    with psycopg.connect(database) as conn:
        for name in ("outbox", "other"):
            schema.install(conn, name)
        write(conn, Event(topic="t", type="T"), schema="other")
        assert conn.execute("SELECT count(*) FROM outbox.events").fetchone() == (0,)
        assert conn.execute("SELECT count(*) FROM other.events").fetchone() == (1,)


@pytest.mark.parametrize("name", ["", "a\0b", "50%"])
def test_what_cannot_be_a_schema_is_refused(database: str, name: str) -> None:
    with (
        psycopg.connect(database) as conn,
        pytest.raises(BadSettings, match="is not a schema name"),
    ):
        schema.install(conn, name)


def test_a_name_that_postgres_would_cut_is_refused(database: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn, "ü" * 31 + "x")
        with pytest.raises(BadSettings, match="longer than Postgres keeps: 63 bytes"):
            schema.install(conn, "ü" * 32)


def test_a_newer_schema_is_refused_everywhere(database: str) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("INSERT INTO outbox.migrations (version, name) VALUES (999, 'future')")
        conn.commit()
        for check in (schema.install, schema.require):
            with pytest.raises(SchemaTooNew, match="version 999, this Dovecote knows"):
                check(conn)
    refused = init("--dsn", database)
    assert refused.returncode == 1
    assert "upgrade the dovecote package" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_older_schema_is_told_to_upgrade(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = schema.migrations()
    newer = schema.Migration(known[-1].version + 1, "later", "SELECT 1;")
    with psycopg.connect(database) as conn:
        schema.install(conn)
        monkeypatch.setattr(Migrations, "steps", lambda _: [*known, newer])
        with pytest.raises(SchemaMissing, match=f"is at version {known[-1].version}, not") as it:
            schema.require(conn)
        assert f"`dovecote init outbox --print-sql --since {known[-1].version}`" in str(it.value)
        assert schema.install(conn) == [newer]
        schema.require(conn)


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.version for step in schema.migrations()] == list(
        range(1, len(schema.migrations()) + 1)
    )


def test_the_command_takes_its_dsn_from_the_environment(database: str) -> None:
    done = init(DOVECOTE_DSN=database)
    assert (done.returncode, done.stderr) == (0, "")
    assert "applied 0001 events" in done.stdout
    password = psycopg.conninfo.conninfo_to_dict(database)["password"]
    assert str(password) not in done.stdout


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        (
            "host=127.0.0.1 port=1 password=tops3cret",
            "cannot connect: .*--dsn or DOVECOTE_DSN right",
        ),
        ("password=two tops3cret words", "cannot read this connection string"),
        ("postgresql://u:%zztops3cret@h/db", "cannot read this connection string"),
    ],
)
def test_a_database_out_of_reach_is_a_clear_error(dsn: str, says: str) -> None:
    failed = init("--dsn", dsn)
    assert failed.returncode in {1, 2}
    assert "Traceback" not in failed.stderr
    assert "tops3cret" not in failed.stderr
    assert re.search(says, failed.stderr, re.DOTALL), failed.stderr


def test_a_role_without_rights_is_told_what_to_do(database: str) -> None:
    with new_role(database) as (_, own):
        failed = init("--dsn", own)
        assert failed.returncode == 1
        assert "--print-sql" in failed.stderr
        assert "Traceback" not in failed.stderr
