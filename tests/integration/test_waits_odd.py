"""Callers wait on connections that others hold, stop or lend."""

import asyncio

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import make_conninfo
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dedup import Applied, TimedOut, Waits, handled, handled_async
from outbox.errors import OpenTransaction, UnsupportedConnection
from tests.support.handling import LONG, take, until_registered
from tests.support.inboxes import inbox
from tests.support.writers import address, url

__all__ = ["inbox"]


def test_a_session_within_the_open_transaction_of_a_connection_is_refused(inbox: str) -> None:
    engine = sqlalchemy.create_engine(url(inbox, "psycopg"))
    with engine.connect() as conn, conn.begin() as outer:
        with Session(conn, join_transaction_mode="create_savepoint") as session:
            session.execute(sqlalchemy.text("SELECT 1"))
            session.commit()
            with pytest.raises(OpenTransaction, match="commit the connection that the session"):
                handled(session, "e1", by="shipping", timeout=1)
        outer.commit()
        with Session(conn) as session:
            assert isinstance(handled(session, "e1", by="shipping", timeout=0), TimedOut)
    with Session() as session, pytest.raises(UnsupportedConnection, match="no engine of its own"):
        handled(session, "e1", by="shipping", timeout=1)
    engine.dispose()


def test_an_async_session_within_an_open_transaction_is_refused(inbox: str) -> None:
    async def ask() -> None:
        engine = create_async_engine(url(inbox, "psycopg"))
        async with engine.connect() as conn, conn.begin():
            session = AsyncSession(conn, join_transaction_mode="create_savepoint")
            async with session:
                with pytest.raises(OpenTransaction, match="commit the connection that the"):
                    await handled_async(session, "e1", by="shipping", timeout=1)
        await engine.dispose()

    asyncio.run(ask())


def test_a_statement_that_others_stop_ends_no_callers_wait(inbox: str) -> None:
    async def wait() -> None:
        dsn = make_conninfo(inbox, options="-c lock_timeout=100ms")
        async with Waits(dsn) as waits:
            with psycopg.connect(inbox) as other:
                other.execute("LOCK TABLE inbox.awaited")
                caller = asyncio.create_task(waits.handled("e1", by="shipping", timeout=LONG))
                found = await waits.handled("e2", by="shipping", timeout=1)
                assert isinstance(found, TimedOut)
            await asyncio.to_thread(take, inbox, "e1")
            assert isinstance(await caller, Applied)

    asyncio.run(wait())


def test_a_cancelled_call_leaves_nothing_on_a_pooled_connection(inbox: str) -> None:
    async def cancelled() -> None:
        async with asyncpg.create_pool(address(inbox), min_size=1, max_size=1) as pool:
            async with pool.acquire() as conn:
                caller = asyncio.create_task(
                    handled_async(conn, "e1", by="shipping", timeout=LONG)
                )
                await asyncio.to_thread(until_registered, inbox)
                caller.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await caller
                assert await conn.fetch("SELECT pg_listening_channels()") == []
            async with pool.acquire() as conn:
                assert await conn.fetchval("SELECT 1") == 1

    asyncio.run(cancelled())
