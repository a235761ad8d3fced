"""Rights are granted by a command, its printed SQL or an upgrade, and to nobody else."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox import Event, NotAllowed, schema, write, write_async
from tests import old_schemas
from tests.support.commands import init
from tests.support.crews import Crew, rights


def test_a_stranger_is_told_which_command_lets_it_write(crew: Crew) -> None:
    wanted = f"run `dovecote init outbox --writer-role {crew.role('stranger')}` as its owner"
    with psycopg.connect(crew.stranger) as conn:
        for events in ([Event(topic="t", type="T")], [Event(topic="t", type="T")] * 2):
            with pytest.raises(NotAllowed, match=wanted):
                write(conn, *events)
            conn.rollback()
    asyncio.run(refused_async(crew, wanted))


async def refused_async(crew: Crew, wanted: str) -> None:
    async with await psycopg.AsyncConnection.connect(crew.stranger) as conn:
        with pytest.raises(NotAllowed, match=wanted):
            await write_async(conn, Event(topic="t", type="T"))


def test_the_command_that_is_named_names_the_schema() -> None:
    assert schema.advice("writer", "shop", "outbox").startswith(
        "run `dovecote init outbox --writer-role shop` "
    )
    assert "--relay-role 'two words' --schema 'my box'`" in schema.advice(
        "relay", "two words", "my box"
    )


def test_granting_twice_and_by_printed_sql_gives_the_same(crew: Crew) -> None:
    arguments = ("--writer-role", crew.role("writer"), "--relay-role", crew.role("relay"))
    before = access(crew.owner)
    assert init("--dsn", crew.owner, *arguments).returncode == 0
    assert access(crew.owner) == before
    newest = str(schema.migrations()[-1].version)
    printed = init("--print-sql", "--since", newest, *arguments).stdout
    with psycopg.connect(crew.owner) as conn:
        role = crew.role("relay")
        conn.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA outbox FROM {role}".encode())
        conn.execute(printed.encode())
    assert access(crew.owner) == before


def access(dsn: str) -> list[Any]:
    """Return the access control list of every object in the schema."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "SELECT relname, relacl::text FROM pg_class"
            " WHERE relnamespace = 'outbox'::regnamespace"
            " UNION ALL SELECT oid::regprocedure::text, proacl::text FROM pg_proc"
            " WHERE pronamespace = 'outbox'::regnamespace"
            " UNION ALL SELECT nspname, nspacl::text FROM pg_namespace WHERE nspname = 'outbox'"
            " ORDER BY 1, 2"
        ).fetchall()


@pytest.mark.parametrize("name", ["outbox", 'o\'x "quoted"'])
def test_an_upgrade_lets_those_write_on_who_could_and_nobody_else(bare: Crew, name: str) -> None:
    named = sql.Identifier(name).as_string()
    with psycopg.connect(bare.owner, autocommit=True) as owner:
        owner.execute(old_schemas.script(1, name).encode())
        owner.execute(f"GRANT USAGE ON SCHEMA {named} TO {bare.role('writer')}".encode())
        assert schema.version(owner, name) == 1
        schema.install(owner, name)
        owner.execute(f"GRANT USAGE ON SCHEMA {named} TO {bare.role('stranger')}".encode())
    for events in ([Event(topic="t", type="T")], [Event(topic="t", type="T")] * 2):
        with psycopg.connect(bare.writer) as conn:
            write(conn, *events, schema=name)
        with psycopg.connect(bare.stranger) as conn, pytest.raises(NotAllowed):
            write(conn, *events, schema=name)


def test_default_privileges_open_nothing(bare: Crew) -> None:
    with psycopg.connect(bare.owner, autocommit=True) as owner:
        owner.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")
        schema.install(owner)
        owner.execute(f"GRANT USAGE ON SCHEMA outbox TO {bare.role('stranger')}".encode())
    assert rights(bare, "stranger") == {("outbox", "USAGE")}


def test_a_role_that_is_not_there_is_named(bare: Crew) -> None:
    missing = init("--dsn", bare.owner, "--writer-role", "no such role")
    assert missing.returncode == 2
    assert 'role "no such role" does not exist; create it first' in missing.stderr
    with psycopg.connect(bare.owner) as conn:
        assert schema.version(conn) == 0, "all or nothing"


def test_only_the_owner_grants_and_the_others_are_told_who_that_is(crew: Crew) -> None:
    with psycopg.connect(crew.owner) as conn:
        (owner,) = conn.execute("SELECT current_user::text").fetchone() or ("",)
    # Postgres would warn that nothing was granted, and go on.
    refused = init("--dsn", crew.relay, "--writer-role", crew.role("stranger"))
    assert refused.returncode == 1
    assert f"belongs to role {owner}" in refused.stderr
    assert rights(crew, "stranger") == set()
