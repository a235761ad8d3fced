"""Capture events from the table, and write rows by their numbers."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from uuid import uuid4

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from dovecote.devstack.postgres.postgres import Postgres
from outbox import write
from relay.postgres.capture.table import TableCapture
from relay.rules.places.progress import Cursor, Place, Progress, at
from tests.support.relaying import event
from tests.support.rows import numbers

LARGE = 501  # one more than a tick reads in one statement


@contextmanager
def capturing(dsn: str, *, rows: int = 10_000, size: int = 16_000_000) -> Iterator[TableCapture]:
    with closing(TableCapture(dsn, "outbox", batch_rows=rows, batch_bytes=size)) as capture:
        yield capture


def after_restart(cursor: Place, capture: TableCapture) -> Cursor:
    """Return the cursor as the next relay finds it in the progress record."""
    found = Progress.decode(at("shop", capture.origin(), cursor).encode()).cursor
    assert isinstance(found, Cursor)
    return found


def read(capture: TableCapture, cursor: Place) -> tuple[list[int], Cursor]:
    """Return the numbers of everything after `cursor`, and the cursor's place then."""
    found: list[int] = []
    for batch in capture.batches(cursor):
        found += numbers(batch.rows)
        cursor = batch.cursor
    return found, after_restart(cursor, capture)


def append(conn: Connection, *numbers: int) -> None:
    write(conn, *[event("t", number) for number in numbers])


def append_range(conn: Connection, first: int, count: int) -> None:
    conn.execute(
        "SELECT outbox.append('t', 'key', n::text::bytea, 'T')"
        " FROM generate_series(%s::int, %s::int) AS n",
        [first, first + count - 1],
    )


@contextmanager
def sessions(dsn: str, count: int) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(dsn)) for _ in range(count)]


def database_of(server: Postgres) -> str:
    """Create a database that vanishes with its server, and return its dsn."""
    name = f"lazy_{uuid4().hex[:8]}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute("SET synchronous_commit = on")
        conn.execute(f"CREATE DATABASE {name}".encode())
    return make_conninfo(server.dsn, dbname=name)
