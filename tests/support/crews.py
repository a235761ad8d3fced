"""The roles of an outbox: its owner, its writer, its relay and a stranger."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.commands import init

ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


class Crew(NamedTuple):
    """A database, and connection strings to it: as its owner and as each role."""

    owner: str
    writer: str
    relay: str
    stranger: str

    def role(self, duty: str) -> str:
        return str(psycopg.conninfo.conninfo_to_dict(getattr(self, duty))["user"])


def rights(crew: Crew, duty: str) -> set[tuple[str, str]]:
    """Return everything that a role can do in the schema, according to the server."""
    with psycopg.connect(crew.owner) as conn:
        parameters = {"role": crew.role(duty), "rights": list(ON_TABLES)}
        return set(
            conn.execute(
                "SELECT relname, kind FROM pg_class, unnest(%(rights)s::text[]) AS kind"
                " WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')"
                " AND has_table_privilege(%(role)s, oid, kind)"
                " UNION ALL SELECT relname, kind FROM pg_class,"
                " unnest('{SELECT,USAGE,UPDATE}'::text[]) AS kind"
                " WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'S'"
                " AND has_sequence_privilege(%(role)s, oid, kind)"
                " UNION ALL SELECT proname, 'EXECUTE' FROM pg_proc"
                " WHERE pronamespace = 'outbox'::regnamespace"
                " AND has_function_privilege(%(role)s, oid, 'EXECUTE')"
                " UNION ALL SELECT 'outbox', kind FROM unnest('{USAGE,CREATE}'::text[]) AS kind"
                " WHERE has_schema_privilege(%(role)s, 'outbox', kind)",
                parameters,
            ).fetchall()
        )


@contextmanager
def new_role(dsn: str, duty: str = "role", attributes: str = "") -> Iterator[tuple[str, str]]:
    """Yield a role that can log in, and its connection string; drop it with all that it has."""
    name = f"{duty}_{uuid4().hex[:12]}"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN {attributes} PASSWORD 'x'".encode())
    try:
        yield name, make_conninfo(dsn, user=name, password="x")  # noqa: S106  # of a moment
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.fixture
def bare(database: str) -> Iterator[Crew]:
    """Roles of this test, in a database without an outbox."""
    with (
        new_role(database, "writer") as (_, writer),
        new_role(database, "relay") as (_, relay),
        new_role(database, "stranger") as (_, stranger),
    ):
        yield Crew(database, writer, relay, stranger)


@pytest.fixture
def crew(bare: Crew) -> Crew:
    """Roles of this test, which `dovecote init outbox` has given the rights that they need."""
    done = init(
        *("--dsn", bare.owner, "--writer-role", bare.role("writer")),
        *("--relay-role", bare.role("relay")),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"granted {bare.role('writer')} what a writer needs" in done.stdout
    return bare
