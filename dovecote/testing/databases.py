"""A new database for a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.inbox import schema as inbox_schema
from outbox import schema as outbox_schema


class OutboxDatabase(str):
    """The connection string of a database, as libpq reads it."""

    __slots__ = ()

    def url(self, driver: str | None = None) -> str:
        """
        Return it as a URL: with `driver` (`psycopg`, `asyncpg`) for SQLAlchemy, else for asyncpg.
        """
        known = {name: quote(str(each), safe="") for name, each in conninfo_to_dict(self).items()}
        scheme = "postgresql" + (f"+{driver}" if driver else "")
        user = known.get("user", "")
        password = f":{known['password']}" if "password" in known else ""
        place = f"{known.get('host', 'localhost')}:{known.get('port', '5432')}"
        return f"{scheme}://{user}{password}@{place}/{known['dbname']}"


@contextmanager
def new_database(dsn: str) -> Iterator[OutboxDatabase]:
    """Yield a database with a random name, an outbox and an inbox, and drop it."""
    # Not by a template: the copy of an outbox has the same id, and Kafka would take the relays of
    # both for one.
    with empty_database(dsn) as made:
        with psycopg.connect(made) as conn:
            outbox_schema.install(conn)
            inbox_schema.install(conn)
        yield OutboxDatabase(made)


@contextmanager
def empty_database(dsn: str) -> Iterator[str]:
    """Yield a database with a random name, and drop it with its replication slots."""
    name = f"test_{uuid4().hex}"
    quoted = sql.Identifier(name)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(quoted))
    try:
        yield make_conninfo(dsn, dbname=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as admin:
            _drop_slots(admin, name)
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))


def _drop_slots(admin: psycopg.Connection, database: str) -> None:
    """Drop the database's replication slots: FORCE does not, and they would keep the database."""
    admin.execute(
        "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots"
        " WHERE database = %s AND active_pid IS NOT NULL",
        [database],
    )
    admin.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s",
        [database],
    )
