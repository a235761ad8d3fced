"""A caller that waits is told the same, whatever its application has set on the connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.adapt import Loader
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from dedup import Applied, TimedOut, handled_async
from outbox import Event, Parked, Published, published, published_async, write_async
from outbox import TimedOut as NotPublished
from outbox.testing import written, written_async
from tests.support.fix_django import django_database
from tests.support.handling import LONG, take
from tests.support.inboxes import inbox
from tests.support.writers import address, url

__all__ = ["inbox"]

EVENT = Event(topic="orders", type="OrderPlaced", key="order 42", value={"a": 1})
CODECS = ["text", "bytea", "bool", "int4", "int8", "uuid", "json", "timestamptz", "varchar"]
PARKED = (
    "INSERT INTO outbox.parked (name, number, position, id, time, topic, key, value, type, source,"
    " code, reason, holds) VALUES"
    " ('outbox', 1, 1, %s, now(), 'orders', 'order 42', 'x', 'T', 's', 'C', 'no', true)"
)
STARTED = "SELECT outbox.confirm('outbox', '1000000:1000000:', NULL, 0)"
REPORTED = (
    "UPDATE outbox.relays SET drained = '1000000:1000000:', drained_in = outbox.this_database()"
)


async def with_codecs(conn: Any) -> None:
    for name in CODECS:
        await conn.set_type_codec(
            name,
            schema="pg_catalog",
            encoder=lambda _: "of the application",
            decoder=lambda _: "of the application",
        )


@asynccontextmanager
async def connected(dsn: str, library: str) -> AsyncIterator[Any]:
    if library == "asyncpg":
        conn = await asyncpg.connect(address(dsn))
        await with_codecs(conn)
        yield conn
        await conn.close()
        return
    engine = create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool)
    async with engine.connect() as below:
        await with_codecs((await below.get_raw_connection()).driver_connection)
        yield below
    await engine.dispose()


@pytest.fixture(params=["asyncpg", "sqlalchemy"])
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reported(dsn: str) -> Iterator[str]:
    """An outbox whose relay has parked the event, and reported all others as published."""
    with psycopg.connect(dsn) as other:
        other.execute(STARTED)
        other.execute(PARKED, [EVENT.id])
        other.execute(REPORTED)
    yield dsn
    with psycopg.connect(dsn) as other:
        other.execute("TRUNCATE outbox.parked")


def ask(dsn: str, library: str, timeout: float) -> Published | Parked | NotPublished:
    async def asking() -> Published | Parked | NotPublished:
        async with connected(dsn, library) as conn:
            return await published_async(conn, EVENT, timeout=timeout)

    return asyncio.run(asking())


def test_a_parked_event_is_parked(reported: str, library: str) -> None:
    assert isinstance(ask(reported, library, LONG), Parked)


def test_an_event_that_nobody_has_reported_is_not_published(dsn: str, library: str) -> None:
    with psycopg.connect(dsn) as other:
        other.execute(STARTED)
    assert isinstance(ask(dsn, library, 0), NotPublished)


def test_a_parked_event_is_parked_for_a_client_without_an_encoding(reported: str) -> None:
    with psycopg.connect(reported, client_encoding="sql_ascii") as conn:
        assert isinstance(published(conn, EVENT, timeout=LONG), Parked)


@pytest.mark.parametrize("poll", [None, 0.1])
def test_a_caller_learns_what_is_handled_and_what_is_not(
    inbox: str, library: str, poll: float | None
) -> None:
    async def ask() -> None:
        async with connected(inbox, library) as conn:
            found = await handled_async(conn, "e1", by="shipping", timeout=LONG, poll=poll)
            assert isinstance(found, Applied)
            found = await handled_async(conn, "e2", by="shipping", timeout=0, poll=poll)
            assert isinstance(found, TimedOut)

    take(inbox, "e1")
    asyncio.run(ask())


def test_a_test_reads_what_its_transaction_has_written(dsn: str, library: str) -> None:
    async def ask() -> None:
        async with connected(dsn, library) as conn:
            if library == "asyncpg":
                async with conn.transaction():
                    await write_async(conn, EVENT)
                    found = await written_async(conn)
            else:
                await write_async(conn, EVENT)
                found = await written_async(conn)
            assert [each.id for each in found] == [EVENT.id]

    asyncio.run(ask())


class Words(Loader):
    def load(self, data: Any) -> str:
        return f"the word {bytes(data).decode()}"


def test_a_test_reads_it_below_django_whatever_loads_text(dsn: str) -> None:
    with django_database(dsn) as conn:
        conn.set_autocommit(False)
        conn.connection.adapters.register_loader("text", Words)
        assert written(conn) == []
        conn.rollback()
