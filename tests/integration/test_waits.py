"""Callers wait until a consumer group has handled an event, against a real Postgres."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import make_conninfo
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dedup import Applied, TimedOut, Waits, handled, handled_async
from dedup.inbox import schema
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again
from outbox.errors import (
    BadSettings,
    NotAllowed,
    OpenTransaction,
    SchemaMissing,
    SharedSession,
    UnsupportedConnection,
)
from tests.support.handling import LONG, SHIPPING, registered, take, taking, until_registered
from tests.support.inboxes import inbox
from tests.support.pooler import Pooler
from tests.support.waiting import patient
from tests.support.writers import address, url

__all__ = ["inbox"]


def in_vain(dsn: str, id_: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return handled(conn, id_, by="shipping", timeout=0.1)


def test_a_caller_returns_when_the_effects_are_committed(inbox: str) -> None:
    id_ = str(uuid4())
    with ThreadPoolExecutor() as pool, psycopg.connect(inbox, autocommit=True) as conn:
        waiting = pool.submit(handled, conn, id_, by="shipping", timeout=LONG)
        until_registered(inbox)
        with taking(inbox, id_):
            assert not waiting.done()
        began = time.monotonic()
        result = waiting.result()
        assert isinstance(result, Applied)
        assert result.round == 0
        assert time.monotonic() - began < patient(1)
        assert conn.execute("SELECT count(*) FROM pg_listening_channels()").fetchone() == (0,)


def test_an_event_that_was_handled_before_is_found_at_once(inbox: str) -> None:
    take(inbox, "e1")
    with psycopg.connect(inbox) as conn:  # not in autocommit mode
        assert isinstance(handled(conn, "e1", by="shipping", timeout=0), Applied)
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert isinstance(handled(conn, "e1", by="billing", timeout=0), TimedOut)


def test_a_handler_at_work_before_anybody_waited_is_not_missed(inbox: str) -> None:
    with ThreadPoolExecutor() as pool, psycopg.connect(inbox, autocommit=True) as conn:
        with taking(inbox, "e1"):
            # It has looked for callers already, and notifies nobody.
            waiting = pool.submit(handled, conn, "e1", by="shipping", timeout=LONG)
            until_registered(inbox)
        began = time.monotonic()
        assert isinstance(waiting.result(), Applied)
        assert time.monotonic() - began < patient(2)  # and not only after the slow look


def test_a_handler_in_an_older_snapshot_notifies(inbox: str) -> None:
    with (
        psycopg.connect(inbox) as handler,
        ThreadPoolExecutor() as pool,
        psycopg.connect(inbox, autocommit=True) as conn,
    ):
        handler.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        handler.execute("SELECT 1")
        waiting = pool.submit(handled, conn, "e1", by="shipping", timeout=LONG)
        until_registered(inbox)
        assert SHIPPING.take(handler, Identity("dovecote", "e1")) is None
        handler.commit()
        assert isinstance(waiting.result(), Applied)


def test_a_handler_that_rolled_back_is_waited_for_until_it_succeeds(inbox: str) -> None:
    with ThreadPoolExecutor() as pool, psycopg.connect(inbox, autocommit=True) as conn:
        waiting = pool.submit(handled, conn, "e1", by="shipping", timeout=LONG)
        until_registered(inbox)
        with taking(inbox, "e1") as tx:
            tx.rollback()
        assert not waiting.done()
        take(inbox, "e1")
        assert isinstance(waiting.result(), Applied)


def test_a_handler_that_asks_for_another_round_has_not_finished(inbox: str) -> None:
    with taking(inbox, "e1") as tx:
        SHIPPING.again(tx, Identity("dovecote", "e1"), Again(timedelta(seconds=7)))
    result = in_vain(inbox, "e1")
    assert isinstance(result, TimedOut)
    assert result.again == timedelta(seconds=7)
    with psycopg.connect(inbox) as tx:
        SHIPPING.take(tx, Identity("dovecote", "e1", 1))
    later = in_vain(inbox, "e1")
    assert isinstance(later, Applied)
    assert later.round == 1


def test_nobody_is_notified_of_an_event_that_nobody_waits_for(inbox: str) -> None:
    with psycopg.connect(inbox, autocommit=True) as conn:
        conn.execute("LISTEN dovecote_handled")
        take(inbox, "e1")
        assert in_vain(inbox, "awaited") is not None
        take(inbox, "e2")
        take(inbox, "awaited")
        heard = [each.payload for each in conn.notifies(timeout=patient(5), stop_after=1)]
    assert len(heard) == 1
    assert "awaited" not in heard[0]


def test_a_transaction_is_refused(inbox: str) -> None:
    with psycopg.connect(inbox) as conn:
        conn.execute("SELECT 1")
        with pytest.raises(OpenTransaction, match="nobody else sees its events before"):
            handled(conn, "e1", by="shipping", timeout=1)
    engine = sqlalchemy.create_engine(url(inbox, "psycopg"))
    with Session(engine) as session:
        session.execute(sqlalchemy.text("SELECT 1"))
        with pytest.raises(OpenTransaction, match="commit the session first"):
            handled(session, "e1", by="shipping", timeout=1)
    engine.dispose()


def test_bad_arguments_are_refused(inbox: str) -> None:
    with psycopg.connect(inbox, autocommit=True) as conn:
        with pytest.raises(BadSettings, match="timeout=-1"):
            handled(conn, "e1", by="shipping", timeout=-1)
        with pytest.raises(BadSettings, match="poll=0"):
            handled(conn, "e1", by="shipping", timeout=1, poll=0)
        with pytest.raises(BadSettings, match="by=''"):
            handled(conn, "e1", by="", timeout=1)
        for wrong in (float("nan"), float("inf"), "1", None):
            with pytest.raises(BadSettings, match=r"timeout=.* is not a number of seconds"):
                handled(conn, "e1", by="shipping", timeout=wrong)  # type: ignore[arg-type]
        row: Any = SimpleNamespace(id="order-1")
        with pytest.raises(
            BadSettings, match="of an object, write and wait for the same as_event"
        ):
            handled(conn, row, by="shipping", timeout=1)
        with pytest.raises(BadSettings, match="neither an event nor the id"):
            handled(conn, "", by="shipping", timeout=1)
        with pytest.raises(SchemaMissing, match="--schema elsewhere"):
            handled(conn, "e1", by="shipping", timeout=1, schema="elsewhere")
        with pytest.raises(UnsupportedConnection, match="is not awaited"):
            asyncio.run(handled_async(conn, "e1", by="shipping", timeout=1))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedConnection, match="nobody can wait on"):
        handled("dsn", "e1", by="shipping", timeout=1)  # type: ignore[arg-type]


def test_a_pooler_is_refused_and_asked_at_an_interval_instead(inbox: str) -> None:
    pooler = Pooler(inbox)
    dsn = make_conninfo(inbox, host="127.0.0.1", port=pooler.port)
    try:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
            with pytest.raises(SharedSession, match="poll=SECONDS"):
                handled(conn, "e1", by="shipping", timeout=1)
            timer = threading.Timer(0.2, take, [inbox, "e1"])
            timer.start()
            found = handled(conn, "e1", by="shipping", timeout=LONG, poll=0.05)
            assert isinstance(found, Applied)
            timer.join()
    finally:
        pooler.close()
    assert registered(inbox) == 0


def test_a_role_that_waits_can_do_that_and_nothing_else(inbox: str) -> None:
    with psycopg.connect(inbox, autocommit=True) as owner:
        owner.execute("CREATE ROLE waiting_caller LOGIN PASSWORD 'secret'")
        try:
            other = make_conninfo(inbox, user="waiting_caller", password="secret")  # noqa: S106  # a role of this test
            with psycopg.connect(other, autocommit=True) as conn:
                with pytest.raises(NotAllowed, match="--waiter-role waiting_caller"):
                    handled(conn, "e1", by="shipping", timeout=0)
                schema.install(owner, waiters=["waiting_caller"])
                take(inbox, "e1")
                assert isinstance(handled(conn, "e1", by="shipping", timeout=0), Applied)
                for forbidden in (
                    "SELECT * FROM inbox.handled",
                    "SELECT * FROM inbox.awaited",
                    "SELECT nextval('inbox.by_id')",
                    "SELECT inbox.notify_waiting('shipping', 'e1')",
                    "SELECT inbox.take('shipping', 'e2@dovecote', 0)",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        conn.execute(forbidden.encode())
        finally:
            owner.execute("DROP OWNED BY waiting_caller")
            owner.execute("DROP ROLE waiting_caller")


@pytest.mark.parametrize("library", ["psycopg", "asyncpg", "sqlalchemy", "sqlalchemy+asyncpg"])
def test_every_library_waits(inbox: str, library: str) -> None:
    async def waits(conn: object) -> None:
        waiting = asyncio.create_task(
            handled_async(conn, "e1", by="shipping", timeout=LONG)  # type: ignore[arg-type]
        )
        await asyncio.to_thread(until_registered, inbox, 1)
        await asyncio.to_thread(take, inbox, "e1")
        assert isinstance(await waiting, Applied)

    async def with_one() -> None:
        if library == "psycopg":
            async with await psycopg.AsyncConnection.connect(inbox) as conn:
                await waits(conn)
        elif library == "asyncpg":
            pool = await asyncpg.create_pool(address(inbox), min_size=1)
            async with pool, pool.acquire() as one:
                await waits(one)
                async with one.transaction():
                    with pytest.raises(OpenTransaction):
                        await handled_async(one, "e1", by="shipping", timeout=1)
        else:
            driver = library.partition("+")[2] or "psycopg"
            engine = create_async_engine(url(inbox, driver))
            async with AsyncSession(engine) as session:
                await waits(session)
                await session.execute(sqlalchemy.text("SELECT 1"))
                with pytest.raises(OpenTransaction):
                    await handled_async(session, "e1", by="shipping", timeout=1)
            await engine.dispose()

    asyncio.run(with_one())


def test_sqlalchemy_waits_on_a_session_and_a_connection(inbox: str) -> None:
    take(inbox, "e1")
    engine = sqlalchemy.create_engine(url(inbox, "psycopg"))
    with Session(engine) as session:
        assert isinstance(handled(session, "e1", by="shipping", timeout=0), Applied)
    with engine.connect() as conn:
        assert isinstance(handled(conn, "e1", by="shipping", timeout=0), Applied)
    engine.dispose()


def test_a_thousand_callers_share_one_connection(inbox: str) -> None:
    ids = [str(uuid4()) for _ in range(1000)]

    async def all_of_them() -> None:
        async with Waits(inbox) as waits:
            calls = [
                asyncio.create_task(waits.handled(each, by="shipping", timeout=LONG))
                for each in ids
            ]
            await asyncio.to_thread(until_registered, inbox, 1000)
            assert waits.waiting == 1000
            with psycopg.connect(inbox) as conn:
                row = conn.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND pid <> pg_backend_pid()"
                ).fetchone()
            assert row == (1,)

            def batch() -> None:
                with psycopg.connect(inbox) as conn:
                    SHIPPING.take_many(conn, [Identity("dovecote", each) for each in ids])

            await asyncio.to_thread(batch)
            results = await asyncio.gather(*calls)
            assert all(isinstance(each, Applied) for each in results)
            assert waits.waiting == 0

    asyncio.run(all_of_them())


def test_a_lost_connection_is_made_anew_and_nothing_is_missed(inbox: str) -> None:
    def cut() -> None:
        with psycopg.connect(inbox, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    async def waits_on() -> None:
        async with Waits(inbox) as waits:
            first = asyncio.create_task(waits.handled("e1", by="shipping", timeout=LONG))
            second = asyncio.create_task(waits.handled("e2", by="shipping", timeout=LONG))
            await asyncio.to_thread(until_registered, inbox, 2)
            await asyncio.to_thread(cut)
            await asyncio.to_thread(take, inbox, "e1")
            assert isinstance(await first, Applied)
            await asyncio.to_thread(take, inbox, "e2")
            assert isinstance(await second, Applied)
            late = await waits.handled("e3", by="shipping", timeout=0.05)
            assert isinstance(late, TimedOut)
            assert "may still do so" in late.said
        with pytest.raises(BadSettings, match="not open"):
            await waits.handled("e1", by="shipping", timeout=1)

    asyncio.run(waits_on())
