"""`outbox.sqlalchemy.record` with async sessions, with two phases, and with a trace."""

import asyncio
import gc
import weakref
from typing import Any

import psycopg
import pytest
import sqlalchemy
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from outbox import Event, NoTransaction, UnsupportedConnection, schema
from outbox.sqlalchemy import record
from tests.support.writers import url
from tests.support.written import stored

DRIVERS = pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("CREATE TABLE orders (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
    return database


def of(number: int) -> Event[Any]:
    return Event(topic="orders", type="Placed", key="k", value=b"%d" % number)


def values(dsn: str) -> list[str]:
    return [bytes(each).decode() for each in stored(dsn)]


def engine_of(dsn: str, driver: str) -> AsyncEngine:
    return create_async_engine(url(dsn, driver), poolclass=NullPool)


INSERT = sqlalchemy.text("INSERT INTO orders VALUES (1)")


@DRIVERS
def test_an_async_session_commits_rolls_back_and_keeps_to_savepoints(
    shop: str, driver: str
) -> None:
    async def use() -> None:
        engine = engine_of(shop, driver)
        async with AsyncSession(engine) as session, session.begin():
            record(session, of(1))
            savepoint = await session.begin_nested()
            record(session, of(2))
            await session.flush()
            await savepoint.rollback()
            record(session, of(3))
        async with AsyncSession(engine) as session:
            record(session, of(4))
            await session.rollback()
            await session.commit()
        async with async_sessionmaker(engine).begin() as session:
            record(session, of(5))
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        record(scoped, of(6))
        await scoped.commit()
        await scoped.remove()
        await engine.dispose()

    asyncio.run(use())
    assert values(shop) == ["1", "3", "5", "6"]


@DRIVERS
def test_an_async_commit_that_fails_leaves_no_event(shop: str, driver: str) -> None:
    async def use() -> None:
        engine = engine_of(shop, driver)
        async with AsyncSession(engine) as session:
            await session.execute(INSERT)
            await session.execute(INSERT)
            record(session, of(1))
            await session.commit()

    with pytest.raises(IntegrityError, match="orders_id_key"):
        asyncio.run(use())
    assert values(shop) == []


def test_a_listener_of_an_async_session_may_record_when_it_commits(shop: str) -> None:
    async def use() -> None:
        engine = engine_of(shop, "asyncpg")
        async with AsyncSession(engine) as session:
            sqlalchemy.event.listen(
                session.sync_session, "before_commit", lambda given: record(given, of(1))
            )
            await session.commit()
        await engine.dispose()

    asyncio.run(use())
    assert values(shop) == ["1"]


def test_an_async_connection_is_refused(shop: str) -> None:
    async def use(conn: AsyncConnection) -> None:
        record(conn, of(1))

    engine = engine_of(shop, "psycopg")
    with pytest.raises(UnsupportedConnection, match="not AsyncConnection; on a connection"):
        asyncio.run(use(AsyncConnection(engine)))


def test_events_are_prepared_and_committed_in_two_phases() -> None:
    # The servers of the other tests prepare no transactions.
    folder = temporary_directory(server_user())
    with Postgres(
        folder, fsync=False, settings={"max_prepared_transactions": "2"}, temporary=True
    ) as postgres:
        with psycopg.connect(postgres.dsn) as conn:
            schema.install(conn)
        engine = sqlalchemy.create_engine(url(postgres.dsn, "psycopg"), poolclass=NullPool)
        with Session(engine, twophase=True) as session:
            record(session, of(1))
            session.prepare()
            assert values(postgres.dsn) == []
            with pytest.raises(NoTransaction, match="prepared"):
                record(session, of(2))
            session.commit()
            assert values(postgres.dsn) == ["1"]
            record(session, of(3))
            session.prepare()
            session.rollback()
            assert values(postgres.dsn) == ["1"]


def test_an_event_has_the_trace_in_which_it_was_recorded(
    shop: str, spans: InMemorySpanExporter
) -> None:
    engine = sqlalchemy.create_engine(url(shop, "psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        with trace.get_tracer("shop").start_as_current_span("place order"):
            record(session, of(1))
        with trace.get_tracer("shop").start_as_current_span("commit"):
            session.commit()
    created = [each for each in spans.get_finished_spans() if each.name == "create orders"]
    assert len(created) == 1
    assert created[0].context is not None
    (headers,) = stored(shop, "header_values")
    assert f"{created[0].context.trace_id:032x}" in headers[0].decode()
    around = next(each for each in spans.get_finished_spans() if each.name == "place order")
    assert created[0].parent is not None
    assert around.context is not None
    assert created[0].parent.span_id == around.context.span_id


def test_a_session_that_nobody_ends_is_not_kept_alive(shop: str) -> None:
    engine = sqlalchemy.create_engine(url(shop, "psycopg"), poolclass=NullPool)
    session = Session(engine)
    record(session, of(1))
    seen = weakref.ref(session)
    del session
    gc.collect()
    assert seen() is None
