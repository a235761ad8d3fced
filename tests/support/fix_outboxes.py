"""Fixtures of an outbox that a module has for itself, as new for each test."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.fix_stack import Servers, new_database
from tests.support.relaying import installed
from tests.support.written import Conn


@pytest.fixture(scope="module")
def installation(stack: Servers) -> Iterator[str]:
    """The module's database, with an outbox and a table of the caller's own."""
    with new_database(stack) as database:
        with psycopg.connect(installed(database)) as conn:
            conn.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        yield database


@pytest.fixture
def dsn(installation: str) -> str:
    """That database, as new."""
    with psycopg.connect(installation) as conn:
        conn.execute("TRUNCATE outbox.events, outbox.relays, orders")
        conn.execute("SELECT outbox.write_to_leaf(0)")
    return installation


@pytest.fixture
def conn(dsn: str) -> Iterator[Conn]:
    """A connection to that database."""
    with psycopg.connect(dsn) as conn:
        yield conn


@pytest.fixture
def writer(conn: Conn) -> Conn:
    """That connection, where a test has others as well."""
    return conn
