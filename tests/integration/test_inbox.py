"""An event's effects happen once, however often it comes, and however its handler ends."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from dedup.inbox import schema as inbox_schema
from dedup.inbox.connections import Connections
from dedup.inbox.inbox import Inbox
from dedup.inbox.keeper import Keeper
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again, Dead, Done, Result, Retry, Skip, Unavailable
from outbox import NoTransaction, SchemaMissing, UnsupportedConnection
from outbox.envelope import ROUND
from outbox.event import Event
from tests.support.inboxes import DUPLICATE, INBOX, Ring, waits
from tests.support.waiting import patient, until

EVENT = Event(topic="orders", key="k", value={"n": 1}, type="Placed", id="e1")


Make = Callable[[Result | Exception], Callable[[Event], Result]]


def effects(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM effects").fetchone()
        assert row is not None
        return int(row[0])


def in_round(number: int) -> Event:
    event = Event(topic="orders", type="Placed", value=None, id="e1")
    object.__setattr__(event, "headers", ((ROUND, str(number).encode()),))
    return event


def told(outcome: Result | Exception) -> Result:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def with_psycopg(dsn: str, outcome: Result | Exception) -> Callable[[Event], Result]:
    def handle(event: Event, tx: psycopg.Connection) -> Result:
        tx.execute("INSERT INTO effects VALUES (%s)", [event.id])
        return told(outcome)

    return INBOX.once(handle, lambda: psycopg.connect(dsn))


def with_sqlalchemy(dsn: str, outcome: Result | Exception) -> Callable[[Event], Result]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))

    def handle(event: Event, tx: Session) -> Result:
        tx.execute(text("INSERT INTO effects VALUES (:id)"), {"id": event.id})
        return told(outcome)

    def handler(event: Event) -> Result:
        try:
            return INBOX.once(handle, sessionmaker(engine).begin)(event)
        finally:
            engine.dispose()

    return handler


def with_psycopg_async(dsn: str, outcome: Result | Exception) -> Callable[[Event], Result]:
    async def handle(event: Event, tx: psycopg.AsyncConnection) -> Result:
        await tx.execute("INSERT INTO effects VALUES (%s)", [event.id])
        return told(outcome)

    async def handler(event: Event) -> Result:
        conn = await psycopg.AsyncConnection.connect(dsn)
        return await INBOX.once_async(handle, lambda: conn)(event)

    return lambda event: asyncio.run(handler(event))


def with_sqlalchemy_async(dsn: str, outcome: Result | Exception) -> Callable[[Event], Result]:
    async def handle(event: Event, tx: AsyncSession) -> Result:
        await tx.execute(text("INSERT INTO effects VALUES (:id)"), {"id": event.id})
        return told(outcome)

    async def handler(event: Event) -> Result:
        engine = create_async_engine(
            "postgresql+psycopg://",
            async_creator=lambda: psycopg.AsyncConnection.connect(dsn),
        )
        try:
            return await INBOX.once_async(handle, async_sessionmaker(engine).begin)(event)
        finally:
            await engine.dispose()

    return lambda event: asyncio.run(handler(event))


WAYS = [with_psycopg, with_sqlalchemy, with_psycopg_async, with_sqlalchemy_async]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__.removeprefix("with_"))
def make(request: pytest.FixtureRequest, inbox: str) -> Make:
    return lambda outcome: request.param(inbox, outcome)


def test_a_copy_is_not_handled(make: Make, inbox: str) -> None:
    assert make(Done())(EVENT) == Done()
    assert make(Done())(EVENT) == DUPLICATE
    assert effects(inbox) == 1


def test_what_failed_is_handled_when_it_comes_again(make: Make, inbox: str) -> None:
    for failed in (Retry("busy"), Dead("closed")):
        assert make(failed)(EVENT) == failed
    with pytest.raises(KeyError):
        make(KeyError("amount"))(EVENT)
    assert effects(inbox) == 0

    assert make(Done())(EVENT) == Done()
    assert effects(inbox) == 1


def test_each_round_is_handled_and_a_copy_is_told_of_the_next(make: Make, inbox: str) -> None:
    again = Again(timedelta(seconds=90))

    assert make(again)(EVENT) == again
    # After a crash between the commit and the retry topic, the round is reported again.
    assert make(again)(EVENT) == again
    assert effects(inbox) == 1

    assert make(Done())(in_round(1)) == Done()
    assert make(Done())(in_round(1)) == DUPLICATE
    assert effects(inbox) == 2


def test_a_session_that_ends_before_the_commit_leaves_nothing_and_is_no_failure(
    inbox: str,
) -> None:
    """The state after a crash between the handler's last statement and the commit."""
    ends = [True]

    def handle(event: Event, tx: psycopg.Connection) -> Result:
        tx.execute("INSERT INTO effects VALUES (%s)", [event.id])
        if ends.pop():
            with psycopg.connect(inbox) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [tx.info.backend_pid])
        return Done()

    connections = Connections(inbox)
    handler = INBOX.once(handle, connections.begin)
    with pytest.raises(Unavailable, match="Postgres: "):
        handler(EVENT)
    assert effects(inbox) == 0

    ends.append(False)
    assert handler(EVENT) == Done()
    assert handler(EVENT) == DUPLICATE
    assert effects(inbox) == 1
    connections.close()


def test_a_database_that_is_away_is_no_failure_of_the_event(inbox: str) -> None:
    away = psycopg.conninfo.make_conninfo(inbox, port=1)
    with pytest.raises(Unavailable, match="Postgres: "):
        with_psycopg(away, Done())(EVENT)

    # The handler itself is responsible for its errors there.
    def handle(_: Event, tx: psycopg.Connection) -> Result:
        tx.execute("SELECT 1 / 0")
        return Done()

    connections = Connections(inbox)
    with pytest.raises(errors.DivisionByZero):
        INBOX.once(handle, connections.begin)(EVENT)
    connections.close()


def test_connections_are_given_out_again(inbox: str) -> None:
    given: set[int] = set()

    def handle(_: Event, tx: psycopg.Connection) -> Result:
        given.add(tx.info.backend_pid)
        return Done()

    connections = Connections(inbox)
    handler = INBOX.once(handle, connections.begin)
    for number in range(5):
        handler(Event(topic="orders", type="Placed", value=None, id=f"n{number}"))
    connections.close()

    assert len(given) == 1


def test_the_keeper_passes_the_turn_on_and_raises_the_alarm_once(
    inbox: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "dovecote.consumer.inbox")
    lag, told = [0.0], list[bool]()
    keeper = Keeper(inbox, "inbox", timedelta(hours=1), lag=lambda: lag[0], exceeded=told.append)
    Ring(inbox).age()
    for behind in (0.0, 3599.0, 3601.0, 7200.0, 10.0):
        lag[0] = behind
        keeper.once()

    assert told == [False, False, True, True, False]
    assert Ring(inbox).phase() == 2
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "set a longer `inbox.retention`" in caplog.text


def test_each_consumer_has_a_memory_of_its_own(inbox: str) -> None:
    with psycopg.connect(inbox) as tx:
        assert Inbox("billing").take(tx, Identity("/s", "e1")) is None
        assert Inbox("shipping").take(tx, Identity("/s", "e1")) is None
        assert Inbox("billing").take(tx, Identity("/s", "e1")) == DUPLICATE


@pytest.mark.parametrize("id_", ["long " * 1000, "with \0 in it"])
def test_an_id_of_any_kind_is_remembered(inbox: str, id_: str) -> None:
    with psycopg.connect(inbox) as tx:
        assert INBOX.take(tx, Identity("/s", id_)) is None
        assert INBOX.take(tx, Identity("/s", id_)) == Skip(f"duplicate of {id_}")


def test_a_batch_is_asked_for_in_one_statement(inbox: str) -> None:
    with psycopg.connect(inbox) as tx:
        INBOX.take(tx, Identity("/s", "b"))
        row = tx.execute(
            "SELECT inbox.take_many('billing', ARRAY['c@/s', 'b@/s', 'a@/s', 'c@/s'], '{0,0,0,0}')"
        ).fetchone()
    assert row == ([None, -1, None, -1],)


@pytest.mark.parametrize("isolation", [None, *psycopg.IsolationLevel])
def test_a_copy_waits_for_the_handler_that_has_the_event(
    inbox: str, isolation: psycopg.IsolationLevel | None
) -> None:
    """A consumer that lost its partition may still be at work when the next one begins."""
    with psycopg.connect(inbox) as first, psycopg.connect(inbox) as second:
        second.isolation_level = isolation
        assert INBOX.take(first, Identity("/s", "e1")) is None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(INBOX.take, second, Identity("/s", "e1"))
            until(lambda: waits(inbox), within=10, what="the second to wait")
            first.commit()
            if isolation in {None, *list(psycopg.IsolationLevel)[:2]}:
                assert waiting.result(patient(10)) == DUPLICATE
            else:
                with pytest.raises(errors.SerializationFailure):
                    waiting.result(patient(10))


def test_the_connection_is_the_handlers_own(inbox: str) -> None:
    with psycopg.connect(inbox, autocommit=True) as conn:
        with pytest.raises(NoTransaction):
            INBOX.take(conn, Identity("/s", "e1"))
        with conn.transaction() as block:
            assert INBOX.take(conn, Identity("/s", "e1")) is None
            raise psycopg.Rollback(block)
        with conn.transaction():
            assert INBOX.take(conn, Identity("/s", "e1")) is None
    with pytest.raises(UnsupportedConnection, match=r"builtins\.object"):
        INBOX.take(object(), Identity("/s", "e1"))


def test_a_missing_inbox_is_said_with_the_command(database: str) -> None:
    with psycopg.connect(database) as conn:
        with pytest.raises(SchemaMissing, match="dovecote init inbox"):
            inbox_schema.require(conn)
        inbox_schema.install(conn)
        inbox_schema.require(conn)
        assert inbox_schema.install(conn) == []
