"""In a pipeline, too, an event is written in a transaction of the caller's or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import AsyncConnection, errors
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from dedup.rules.identity import Identity
from outbox import Event, NoTransaction, write, write_async
from tests.support.fix_django import django_database
from tests.support.inboxes import INBOX
from tests.support.writers import url
from tests.support.written import Conn, stored

EVENT = Event(topic="orders", type="OrderPlaced", value=b"1")
LEVEL = {"isolation_level": "AUTOCOMMIT"}

Use = Callable[[Any], None]
UseAsync = Callable[[Any], Awaitable[None]]


def handled(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM inbox.handled").fetchone()
        assert row is not None
        return int(row[0])


def publish(conn: Any) -> None:
    write(conn, EVENT)


def take(conn: Any) -> None:
    INBOX.take(conn, Identity("/s", "e1"))


async def publish_async(conn: Any) -> None:
    await write_async(conn, EVENT)


async def take_async(conn: Any) -> None:
    await INBOX.take_async(conn, Identity("/s", "e1"))


@pytest.mark.parametrize("use", [publish, take])
@pytest.mark.parametrize("before", ["SELECT 1", "BEGIN; COMMIT", "BEGIN; ROLLBACK"])
def test_a_pipeline_is_no_transaction(both: str, use: Use, before: str) -> None:
    with psycopg.connect(both, autocommit=True) as conn, conn.pipeline():
        for each in before.split("; "):
            conn.execute(each.encode())
        with pytest.raises(NoTransaction, match=r"with conn\.transaction|around the handler"):
            use(conn)
    assert (stored(both), handled(both)) == ([], 0)


@pytest.mark.parametrize("use", [publish, take])
def test_a_transaction_is_seen_in_a_pipeline(both: str, use: Use) -> None:
    with psycopg.connect(both, autocommit=True) as conn:
        with conn.pipeline(), conn.transaction():
            conn.execute("SELECT 1")
            use(conn)
        with conn.transaction(), conn.pipeline():
            conn.execute("SELECT 1")
            use(conn)
        with conn.pipeline():
            # It is not even sent when the event is written.
            conn.execute("BEGIN")
            use(conn)
            conn.execute("COMMIT")
    assert (len(stored(both)), handled(both)) in {(3, 0), (0, 1)}


@pytest.mark.parametrize("use", [publish, take])
def test_after_the_callers_own_commit_a_new_transaction_begins(both: str, use: Use) -> None:
    with psycopg.connect(both) as conn, conn.pipeline() as pipeline:
        conn.execute("SELECT 1")
        conn.execute("COMMIT")
        use(conn)
        pipeline.sync()
        conn.rollback()
    assert (stored(both), handled(both)) == ([], 0)


def test_an_error_of_the_callers_comes_before_the_event(conn: Conn, dsn: str) -> None:
    with conn.pipeline():
        conn.execute("SELECT FROM nowhere")
        with pytest.raises(errors.UndefinedTable):
            write(conn, EVENT)
    conn.rollback()
    assert stored(dsn) == []


@pytest.mark.parametrize("use", [publish_async, take_async])
def test_an_async_pipeline_is_no_transaction(both: str, use: UseAsync) -> None:
    async def scenario() -> None:
        async with await AsyncConnection.connect(both, autocommit=True) as conn:
            async with conn.pipeline():
                await conn.execute("SELECT 1")
                with pytest.raises(NoTransaction, match="autocommit"):
                    await use(conn)
            async with conn.pipeline(), conn.transaction():
                await conn.execute("SELECT 1")
                await use(conn)

    asyncio.run(scenario())
    assert (len(stored(both)), handled(both)) in {(1, 0), (0, 1)}


@pytest.mark.parametrize("use", [publish, take])
def test_a_pipeline_within_sqlalchemy_is_no_transaction(both: str, use: Use) -> None:
    engine = sqlalchemy.create_engine(url(both, "psycopg"), poolclass=NullPool, **LEVEL)
    with engine.connect() as conn:
        driver: Any = conn.connection.driver_connection
        with driver.pipeline():
            driver.execute("SELECT 1")
            with pytest.raises(NoTransaction, match="autocommit"):
                use(conn)
        with driver.transaction(), driver.pipeline():
            driver.execute("SELECT 1")
            write(conn, EVENT)
    assert (len(stored(both)), handled(both)) == (1, 0)


@pytest.mark.parametrize("use", [publish_async, take_async])
def test_an_async_pipeline_within_sqlalchemy_is_no_transaction(both: str, use: UseAsync) -> None:
    async def scenario() -> None:
        engine = create_async_engine(url(both, "psycopg"), poolclass=NullPool, **LEVEL)
        async with engine.connect() as conn:
            driver: Any = (await conn.get_raw_connection()).driver_connection
            async with driver.pipeline():
                await driver.execute("SELECT 1")
                with pytest.raises(NoTransaction, match="autocommit"):
                    await use(conn)
            async with driver.transaction(), driver.pipeline():
                await driver.execute("SELECT 1")
                await write_async(conn, EVENT)

    asyncio.run(scenario())
    assert (len(stored(both)), handled(both)) == (1, 0)


def test_the_driver_below_django_is_asked(dsn: str) -> None:
    with django_database(dsn) as conn:
        conn.set_autocommit(False)
        conn.connection.autocommit = True  # Django does not see it
        with pytest.raises(NoTransaction, match=r"atomic\(\)"):
            write(conn, EVENT)
    assert stored(dsn) == []


@pytest.mark.parametrize("use", [publish, take])
def test_a_closed_connection_is_the_drivers_to_refuse(both: str, use: Use) -> None:
    conn = psycopg.connect(both, autocommit=True)
    conn.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        use(conn)
