"""Nobody waits for ever for a server that goes silent while its connections stay open."""

import asyncio
import time
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from outbox.overdue import AsyncConnection, Connection, Overdue, noticing
from proof.proxy import Proxy

PATIENCE = 1.0
SOON = PATIENCE + 20
"""Seconds within which even a busy machine has noticed."""


@pytest.fixture
def way(database: str) -> Iterator[Proxy]:
    """Give a way to the database that can be stalled: what is sent is still acknowledged."""
    given = conninfo_to_dict(database)
    with Proxy((str(given["host"]), int(str(given["port"])))) as proxy:
        yield proxy


@pytest.fixture
def dsn(database: str, way: Proxy) -> str:
    return make_conninfo(database, port=way.port)


def test_a_statement_that_is_not_answered_closes_its_connection(dsn: str, way: Proxy) -> None:
    conn = Connection.open(dsn, patience=PATIENCE)
    conn.execute("SELECT 1")
    way.stall()

    began = time.monotonic()
    with pytest.raises(Overdue, match="has said nothing for 1 s"), conn.transaction():
        conn.execute("SELECT 1")

    assert time.monotonic() - began < SOON
    assert conn.closed


def test_a_statement_that_is_awaited_and_not_answered_closes_its_connection(
    dsn: str, way: Proxy
) -> None:
    async def asked() -> bool:
        conn = await AsyncConnection.open(dsn, patience=PATIENCE)
        await conn.execute("SELECT 1")
        way.stall()
        with pytest.raises(Overdue):
            await conn.execute("SELECT 1")
        return conn.closed

    assert asyncio.run(asyncio.wait_for(asked(), SOON))


def test_a_server_that_goes_on_answering_may_take_longer(database: str) -> None:
    with Connection.open(database, patience=PATIENCE) as conn:
        # One row in less than the patience, all of them in more.
        rows = conn.execute(
            "SELECT pg_sleep(0.4), repeat('x', 20000) FROM generate_series(1, 4)"
        ).fetchall()
    assert len(rows) == 4


def test_what_a_connection_string_says_of_timeouts_holds() -> None:
    found = conninfo_to_dict(noticing("host=a connect_timeout=3"))
    assert found["connect_timeout"] == "3"
    assert found["tcp_user_timeout"] == "25000"
    with pytest.raises(psycopg.ProgrammingError):
        noticing("no connection string")
