"""A database that is away is no record's fault, whatever the driver calls it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from dedup.consumer import Consumer
from dedup.inbox.connections import AsyncConnections, Connections
from dedup.inbox.held import PostgresStates
from dedup.inbox.taken import Aborted
from dedup.inbox.together import together
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Done, Result, Unavailable
from dedup.rules.record import Record
from dovecote.devstack import Stack
from dovecote.push.errors import Away
from dovecote.push.store import schema as push_schema
from dovecote.push.store.tables import Tables
from outbox.envelope import ID, Delivery
from outbox.event import Event
from outbox.postgres.away import sqlstate_of
from tests.support.consuming import committed, event, produce, settings
from tests.support.fix_stack import MakeTopic
from tests.support.inboxes import INBOX
from tests.support.waiting import consume, until

EVENT = Event(topic="orders", key="k", value={"n": 1}, type="Placed", id="e1")
RAISE = "DO $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{}'; END$$"

Handler = Callable[[Event], Result]


def read_only(dsn: str, *, is_so: bool = True) -> None:
    """Let the database take no writes, as it does after a failover, and end its sessions."""
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    change = "SET default_transaction_read_only = on"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET default_transaction_read_only = off")
        conn.execute(
            sql.SQL("ALTER DATABASE {} {}").format(
                sql.Identifier(str(name)),
                sql.SQL(change if is_so else "RESET default_transaction_read_only"),
            )
        )
        conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def with_psycopg(dsn: str, statement: str) -> Handler:
    def handle(_: Event, tx: psycopg.Connection) -> Result:
        with tx.transaction():  # a savepoint: it is repaired before the error leaves the handler
            tx.execute(statement.encode())
        return Done()

    return INBOX.once(handle, lambda: psycopg.connect(dsn))


def with_sqlalchemy(dsn: str, statement: str) -> Handler:
    def handle(_: Event, tx: Session) -> Result:
        with tx.begin_nested():
            tx.execute(text(statement))
        return Done()

    def handler(event: Event) -> Result:
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
        try:
            return INBOX.once(handle, sessionmaker(engine).begin)(event)
        finally:
            engine.dispose()

    return handler


def with_psycopg_async(dsn: str, statement: str) -> Handler:
    async def handle(_: Event, tx: psycopg.AsyncConnection) -> Result:
        await tx.execute(statement.encode())
        return Done()

    async def handler(event: Event) -> Result:
        connections = AsyncConnections(dsn)
        with closing(connections):
            return await INBOX.once_async(handle, connections.begin)(event)

    return lambda event: asyncio.run(handler(event))


def with_sqlalchemy_async(dsn: str, statement: str) -> Handler:
    async def handle(_: Event, tx: AsyncSession) -> Result:
        await tx.execute(text(statement))
        return Done()

    async def handler(event: Event) -> Result:
        engine = create_async_engine(
            "postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(dsn)
        )
        try:
            return await INBOX.once_async(handle, async_sessionmaker(engine).begin)(event)
        finally:
            await engine.dispose()

    return lambda event: asyncio.run(handler(event))


WAYS = [with_psycopg, with_sqlalchemy, with_psycopg_async, with_sqlalchemy_async]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__.removeprefix("with_"))
def running(request: pytest.FixtureRequest, inbox: str) -> Callable[[str], Handler]:
    """Makes a handler that runs a statement in the inbox's transaction."""
    return lambda statement: request.param(inbox, statement)


@pytest.mark.parametrize("sqlstate", ["25006", "53100", "57P01", "58030", "40001", "55P03"])
def test_a_handler_is_told_that_its_database_is_away(
    running: Callable[[str], Handler], sqlstate: str
) -> None:
    with pytest.raises(Unavailable, match="Postgres: no"):
        running(RAISE.format(sqlstate))(EVENT)
    assert running("SELECT 1")(EVENT) == Done()


@pytest.mark.parametrize("sqlstate", ["23505", "57014", "55000", "53400", "42501", "XX000"])
def test_a_statement_that_may_be_at_fault_is_the_handlers(
    running: Callable[[str], Handler], sqlstate: str
) -> None:
    with pytest.raises((psycopg.Error, DBAPIError)) as found:
        running(RAISE.format(sqlstate))(EVENT)
    assert sqlstate_of(getattr(found.value, "orig", found.value)) == sqlstate


def test_a_session_that_ends_is_away(running: Callable[[str], Handler]) -> None:
    with pytest.raises(Unavailable, match="Postgres: "):
        running("SELECT pg_terminate_backend(pg_backend_pid())")(EVENT)


def test_a_read_only_database_is_away_before_the_handler_is_called(
    running: Callable[[str], Handler], inbox: str
) -> None:
    handler = running("SELECT 1")
    read_only(inbox)
    with pytest.raises(Unavailable, match="read-only"):
        handler(EVENT)
    read_only(inbox, is_so=False)
    assert handler(EVENT) == Done()


def test_an_error_that_the_handler_wraps_says_the_same(inbox: str) -> None:
    def wrapping(_: Event, tx: psycopg.Connection) -> Result:
        try:
            tx.execute(RAISE.format("53100").encode())
        except psycopg.Error as error:
            msg = "the order was not stored"
            raise LookupError(msg) from error
        return Done()

    with pytest.raises(Unavailable, match="Postgres: no"):
        INBOX.once(wrapping, lambda: psycopg.connect(inbox))(EVENT)


def test_another_database_of_the_handler_is_its_own_affair(inbox: str) -> None:
    def handle(_: Event, tx: psycopg.Connection) -> Result:
        assert tx.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        with psycopg.connect(inbox) as other:
            other.execute(RAISE.format("25006").encode())
        return Done()

    def connecting(_: Event, __: psycopg.Connection) -> Result:
        psycopg.connect(inbox, port=1)  # nobody listens there
        return Done()

    with pytest.raises(errors.ReadOnlySqlTransaction):
        INBOX.once(handle, lambda: psycopg.connect(inbox))(EVENT)
    with pytest.raises(psycopg.OperationalError):
        INBOX.once(connecting, lambda: psycopg.connect(inbox))(EVENT)


def test_nothing_before_the_handler_is_the_records_fault(inbox: str) -> None:
    with psycopg.connect(inbox) as conn:
        conn.execute("DROP FUNCTION inbox.take")
    handler = INBOX.once(lambda _, __: Done(), lambda: psycopg.connect(inbox))
    with pytest.raises(Unavailable, match=r"Postgres: function inbox\.take"):
        handler(EVENT)


@pytest.mark.parametrize("several", [False, True])
def test_a_transaction_that_an_error_aborted_is_not_taken_for_done(
    inbox: str, *, several: bool
) -> None:
    """Postgres answers its commit with a rollback, and the driver says nothing of that."""

    def careless(_: object, tx: psycopg.Connection) -> None:
        with suppress(psycopg.Error):
            tx.execute("SELECT 1 / 0")

    def begin() -> psycopg.Connection:
        return psycopg.connect(inbox)

    handler: Any = (together if several else INBOX.__class__.once)(INBOX, careless, begin)
    with pytest.raises(Aborted, match="savepoint"):
        handler([EVENT] if several else EVENT)
    assert INBOX.once(lambda _, __: None, begin)(EVENT) == Done()


def test_a_connection_to_a_server_that_takes_no_writes_is_not_used_again(inbox: str) -> None:
    def stuck(tx: psycopg.Connection) -> None:
        tx.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")

    async def stuck_async(connections: AsyncConnections) -> None:
        async with connections.begin() as tx:
            await tx.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        with pytest.raises(errors.ReadOnlySqlTransaction):
            async with connections.begin() as tx:
                await INBOX.take_async(tx, Identity("/shop", "e2"))
        async with connections.begin() as tx:
            assert await INBOX.take_async(tx, Identity("/shop", "e2")) is None

    with closing(Connections(inbox)) as connections:
        with connections.begin() as tx:
            stuck(tx)
        handler = INBOX.once(lambda _, __: None, connections.begin)
        with pytest.raises(Unavailable):
            handler(EVENT)
        assert handler(EVENT) == Done()
    with closing(AsyncConnections(inbox)) as on_loop:
        asyncio.run(stuck_async(on_loop))


def test_states_and_subscriptions_find_it_away(
    inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(inbox) as conn:
        push_schema.install(conn)
    record = Record("orders", 3, 44, 0, b"k", b"{}", [(ID, b"e1")])
    with closing(PostgresStates(inbox, "billing")) as states, closing(Tables(inbox)) as tables:
        read_only(inbox)
        states.keep(record, Delivery(attempt=2))
        with pytest.raises(Away, match="read-only"), tables.begin() as conn:
            tables.execute(conn, "UPDATE {}.subscriptions SET state = 'active'")
    assert "attempts of held records are not kept" in caplog.text


@pytest.mark.parametrize("awaited", [False, True])
def test_a_consumer_waits_for_a_database_that_takes_no_writes(
    stack: Stack,
    inbox: str,
    topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    awaited: bool,
) -> None:
    name, dead, kafka = topic(), topic(), stack.kafka.bootstrap
    given = psycopg.conninfo.conninfo_to_dict(inbox)
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
    called, failing = list[str](), threading.Event()
    failing.set()

    def handle(event: Event, _: object = None) -> None:
        called.append(event.id)
        if event.key == "bad":
            raise LookupError

    async def on_loop(event: Event, tx: object) -> None:
        handle(event, tx)

    consumer = Consumer(
        settings(
            kafka,
            name,
            inbox={"dsn": psycopg.conninfo.make_conninfo("", **given)},
            retries={
                "dead_letter_topic": dead,
                "base": "20ms",
                "ceiling": "50ms",
                "max_attempts": 2,
            },
        ),
        on_loop if awaited else handle,
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        produce(kafka, event(name, "first", 0))
        until(lambda: committed(kafka, name)[0] == 1, within=20, what="it runs")
        read_only(inbox)
        produce(kafka, *(event(name, f"k{n}", n) for n in range(10)), event(name, "bad", 0))
        until(lambda: "read-only" in caplog.text, within=20, what="it is said")
        assert called == ["first-0"]
        read_only(inbox, is_so=False)
        until(lambda: committed(kafka, name)[0] == 12, within=40, what="all are done")
    finally:
        consumer.stop()
        thread.join()
    (letter,) = consume(kafka, dead)
    assert letter.key() == b"bad"
    assert called.count("bad-0") == 2
