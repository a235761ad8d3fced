"""Nobody waits for ever for a server that is silent while its connections stay open."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.consumer import Consumer
from dedup.inbox import schema as inbox_schema
from dedup.inbox.claims import InboxClaims
from dedup.inbox.connections import AsyncConnections, Connections
from dedup.inbox.held import PostgresStates
from dedup.inbox.inbox import Inbox, identity_of
from dedup.inbox.keeper import Keeper
from dedup.rules.policies.results import Done, Result, Unavailable
from dedup.rules.record import Record
from dovecote.devstack import Stack
from dovecote.push.errors import Away
from dovecote.push.store import lease, schema
from dovecote.push.store.lease import Lease
from dovecote.push.store.tables import Tables
from outbox.envelope import ID, Delivery
from outbox.event import Event
from outbox.postgres.overdue import NOTICE, AsyncConnection, Connection, Overdue
from outbox.postgres.session import conninfo
from tests.support.balancer import Balancer
from tests.support.consuming import event, produce, settings
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until

PATIENCE = float(round(patient(0.5)))
SOON = PATIENCE + patient(7)
"""Seconds within which even a busy machine has noticed."""

EVENT = Event(topic="orders", key="k", value={"n": 1}, type="Placed", id="e1")
RECORD = Record("orders", 3, 44, 0, b"k", b"{}", [(ID, b"e1")])


@pytest.fixture
def way(database: str) -> Iterator[Balancer]:
    given = conninfo_to_dict(database)
    with Balancer((str(given["host"]), int(str(given["port"])))) as balancer:
        yield balancer


@pytest.fixture
def dsn(database: str, way: Balancer) -> str:
    return make_conninfo(database, port=way.port)


@pytest.fixture
def inbox(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        inbox_schema.install(conn)
    return dsn


@contextmanager
def soon() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < SOON


def test_a_statement_that_is_not_answered_closes_its_connection(dsn: str, way: Balancer) -> None:
    conn = Connection.open(dsn, patience=PATIENCE)
    conn.execute("SELECT 1")
    way.strand()

    with (
        soon(),
        pytest.raises(Overdue, match=f"has said nothing for {PATIENCE:g} s"),
        conn.transaction(),
    ):
        conn.execute("SELECT 1")

    assert conn.closed


def test_a_statement_that_is_awaited_and_not_answered_closes_its_connection(
    dsn: str, way: Balancer
) -> None:
    async def asked() -> bool:
        conn = await AsyncConnection.open(dsn, patience=PATIENCE)
        await conn.execute("SELECT 1")
        way.strand()
        with pytest.raises(Overdue):
            await conn.execute("SELECT 1")
        return conn.closed

    assert asyncio.run(asyncio.wait_for(asked(), SOON))


def test_a_server_that_goes_on_answering_may_take_longer(database: str) -> None:
    with Connection.open(database, patience=PATIENCE) as conn:
        # One row takes less than the patience, and all of them take more.
        rows = conn.execute(
            "SELECT pg_sleep(%s), repeat('x', 20000) FROM generate_series(1, 4)",
            [0.4 * PATIENCE],
        ).fetchall()
    assert len(rows) == 4


def test_what_a_connection_string_says_of_timeouts_holds() -> None:
    found = conninfo_to_dict(conninfo("host=a connect_timeout=3", ours=NOTICE))
    assert found["connect_timeout"] == "3"
    assert found["tcp_user_timeout"] == "25000"
    with pytest.raises(psycopg.ProgrammingError):
        conninfo("no connection string", ours=NOTICE)


def test_a_handler_of_the_inbox_is_told_that_its_database_is_away(
    inbox: str, way: Balancer
) -> None:
    def handle(event: Event, tx: psycopg.Connection) -> Result:
        if event.key == "stranded":
            way.strand()
            tx.execute("SELECT 1")
        return Done()

    with closing(Connections(inbox, patience=PATIENCE)) as connections:
        handler = Inbox("billing").once(handle, connections.begin, identity=identity_of)
        assert handler(EVENT) == Done()
        event = Event(topic="orders", key="stranded", value=None, type="Placed", id="e2")
        with soon(), pytest.raises(Unavailable, match="has said nothing"):
            handler(event)
        with soon():
            assert handler(EVENT) != Done()  # on another connection, it was handled


def test_a_handler_that_is_awaited_is_told_that_its_database_is_away(
    inbox: str, way: Balancer
) -> None:
    async def handle(_: Event, tx: psycopg.AsyncConnection) -> Result:
        way.strand()
        await tx.execute("SELECT 1")
        return Done()

    connections = AsyncConnections(inbox, patience=PATIENCE)
    handler = Inbox("billing").once_async(handle, connections.begin, identity=identity_of)
    with soon(), pytest.raises(Unavailable, match="has said nothing"):
        asyncio.run(asyncio.wait_for(handler(EVENT), SOON))


def test_partitions_are_claimed_and_states_kept_on_other_connections(
    inbox: str, way: Balancer, caplog: pytest.LogCaptureFixture
) -> None:
    claims = InboxClaims(inbox, "billing", patience=PATIENCE)
    states = PostgresStates(inbox, "billing", patience=PATIENCE)
    with closing(claims), closing(states):
        claims.claim([("orders", 3)])
        states.keep(RECORD, Delivery(attempt=2))
        way.strand()

        with soon(), pytest.raises(psycopg.OperationalError):
            claims.claim([("orders", 3)])
        with soon():
            states.keep(RECORD, Delivery(attempt=3))

        assert "attempts of held records are not kept" in caplog.text
        with soon():
            assert claims.claim([("orders", 3)]) != [0]
            assert states.load([("orders", 3)])


def test_the_turn_of_the_inbox_is_given_up_for_now(
    inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(
        inbox, "inbox", timedelta(days=1), patience=PATIENCE, lag=lambda: 0.0, exceeded=print
    )
    with psycopg.connect(inbox) as holder:
        # A waiting server sends nothing either.
        tables = holder.execute(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relnamespace = 'inbox'::regnamespace AND relkind = 'r'"
        ).fetchall()
        for (name,) in tables:
            holder.execute(f"LOCK TABLE {name}".encode())
        with soon():
            keeper.once()
    assert "turn was not passed on" in caplog.text


def test_a_consumer_goes_on_behind_a_balancer_that_forgets_its_connections(
    stack: Stack,
    inbox: str,
    way: Balancer,
    topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    given = conninfo_to_dict(inbox)
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
    remembered = {"dsn": make_conninfo("", **given), "answer_within": "1s"}
    handled: list[str] = []

    def handle(event: Event, tx: psycopg.Connection) -> None:
        tx.execute("SELECT 1")
        handled.append(event.id)

    consumer = Consumer(settings(kafka, name, inbox=remembered), handle)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    produce(kafka, event(name, "a", 1))
    until(lambda: handled, within=30, what="the first")
    way.strand()
    produce(kafka, event(name, "a", 2))
    until(lambda: "a-2" in handled, within=2 * SOON, what="what came later", promised=True)
    consumer.stop()
    thread.join(patient(30))
    assert not thread.is_alive()


def test_what_push_asks_of_its_tables_fails_soon(
    dsn: str, way: Balancer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    monkeypatch.setattr("dovecote.push.store.tables.PATIENCE", PATIENCE)
    with closing(Tables(dsn)) as tables:
        tables.require()
        way.strand()
        with soon(), pytest.raises(Away, match="has said nothing"):
            tables.require()
        with soon():
            tables.require()


def test_a_lease_that_hears_nothing_is_lost(
    dsn: str, way: Balancer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_PATIENCE", PATIENCE)
    lost = threading.Event()
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    held = Lease(dsn, "push", "hook")
    assert held.take(lost.set)
    way.strand()
    until(lost.is_set, within=SOON, what="it is taken for lost", promised=True)
    held.close()
