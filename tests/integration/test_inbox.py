"""An event's effects happen once, however often it comes, and however its handler ends."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from dedup.inbox import schema as inbox_schema
from dedup.inbox.connections import Connections
from dedup.inbox.held import PostgresStates
from dedup.inbox.inbox import Inbox
from dedup.inbox.keeper import Keeper
from dedup.rules.policies.results import Again, Dead, Done, Result, Retry, Skip, Unavailable
from dedup.rules.record import Record
from outbox import NotAllowed, NoTransaction, SchemaMissing, UnsupportedConnection
from outbox.envelope import ID, ROUND
from outbox.event import Event
from tests import old_schemas
from tests.support.waiting import patient, until

INBOX = Inbox("billing")
EVENT = Event(topic="orders", key="k", value={"n": 1}, type="Placed", id="e1")
DUPLICATE = Skip("duplicate of e1")

Make = Callable[[Result | Exception], Callable[[Event], Result]]


@pytest.fixture
def inbox(database: str) -> str:
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (id text NOT NULL)")
    return database


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
        assert Inbox("billing").take(tx, ("e1", 0)) is None
        assert Inbox("shipping").take(tx, ("e1", 0)) is None
        assert Inbox("billing").take(tx, ("e1", 0)) == DUPLICATE


@pytest.mark.parametrize("id_", ["long " * 1000, "with \0 in it"])
def test_an_id_of_any_kind_is_remembered(inbox: str, id_: str) -> None:
    with psycopg.connect(inbox) as tx:
        assert INBOX.take(tx, (id_, 0)) is None
        assert INBOX.take(tx, (id_, 0)) == Skip(f"duplicate of {id_}")


def test_a_batch_is_asked_for_in_one_statement(inbox: str) -> None:
    with psycopg.connect(inbox) as tx:
        INBOX.take(tx, ("b", 0))
        row = tx.execute(
            "SELECT inbox.take_many('billing', ARRAY['c', 'b', 'a', 'c'], ARRAY[0, 0, 0, 0])"
        ).fetchone()
    assert row == ([None, -1, None, -1],)


@pytest.mark.parametrize("isolation", [None, *psycopg.IsolationLevel])
def test_a_copy_waits_for_the_handler_that_has_the_event(
    inbox: str, isolation: psycopg.IsolationLevel | None
) -> None:
    """A consumer that lost its partition may still be at work when the next one begins."""
    with psycopg.connect(inbox) as first, psycopg.connect(inbox) as second:
        second.isolation_level = isolation
        assert INBOX.take(first, ("e1", 0)) is None
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(INBOX.take, second, ("e1", 0))
            until(lambda: waits(inbox), within=10, what="the second to wait")
            first.commit()
            if isolation in {None, *list(psycopg.IsolationLevel)[:2]}:
                assert waiting.result(patient(10)) == DUPLICATE
            else:
                with pytest.raises(errors.SerializationFailure):
                    waiting.result(patient(10))


def waits(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        return conn.execute(f"{query} AND wait_event_type = 'Lock'").fetchone() is not None


def test_the_connection_is_the_handlers_own(inbox: str) -> None:
    with psycopg.connect(inbox, autocommit=True) as conn:
        with pytest.raises(NoTransaction):
            INBOX.take(conn, ("e1", 0))
        with conn.transaction() as block:
            assert INBOX.take(conn, ("e1", 0)) is None
            raise psycopg.Rollback(block)
        with conn.transaction():
            assert INBOX.take(conn, ("e1", 0)) is None
    with pytest.raises(UnsupportedConnection, match=r"builtins\.object"):
        INBOX.take(object(), ("e1", 0))


def test_a_missing_inbox_is_said_with_the_command(database: str) -> None:
    with psycopg.connect(database) as conn:
        with pytest.raises(SchemaMissing, match="dovecote init inbox"):
            inbox_schema.require(conn)
        inbox_schema.install(conn)
        inbox_schema.require(conn)
        assert inbox_schema.install(conn) == []


class Ring:
    """An inbox whose turns pass as fast as the test likes."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def rotate(self, retention: str = "0s") -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute("SELECT inbox.rotate(%s)", [retention])

    def phase(self) -> int:
        return self._one("SELECT last_value FROM inbox.phase")

    def rows(self) -> int:
        return self._one("SELECT count(*) FROM inbox.handled")

    def turn(self) -> None:
        """Pass the turn on, once, without forgetting anything."""
        before = self.phase()
        self.age()
        until(lambda: self._rotated() >= before + 2, within=10, what="the turn to pass on")

    def age(self) -> None:
        """Make the present slot as old as a turn is long."""
        with psycopg.connect(self.dsn) as conn:
            conn.execute("UPDATE inbox.slots SET began = began - interval '1 day'")

    def _rotated(self) -> int:
        self.rotate("6 days")
        return self.phase()

    def _one(self, query: str) -> int:
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])


def test_an_event_is_known_until_the_retention_is_over(inbox: str) -> None:
    ring, again = Ring(inbox), Again(timedelta(seconds=1))
    with psycopg.connect(inbox) as tx:
        INBOX.take(tx, ("e1", 0))
        INBOX.again(tx, ("e1", 0), again)
    for _ in range(7):
        with psycopg.connect(inbox) as tx:
            assert INBOX.take(tx, ("e1", 0)) == again
            INBOX.take(tx, (f"of turn {ring.phase()}", 0))
        if ring.phase() < 12:
            ring.turn()
    assert ring.rows() == 8

    # The ring is full, so nothing is forgotten for lack of room: the turn stays.
    ring.turn()
    ring.age()
    ring.rotate("6 days")
    assert ring.phase() == 14

    ring.rotate("0s")
    assert ring.rows() == 0
    with psycopg.connect(inbox) as tx:
        assert INBOX.take(tx, ("e1", 0)) is None
    ring.turn()


def test_the_turn_waits_for_who_knows_of_the_old_one_alone(inbox: str) -> None:
    ring = Ring(inbox)
    with psycopg.connect(inbox) as old, psycopg.connect(inbox) as new:
        assert INBOX.take(old, ("e1", 0)) is None
        ring.age()
        for _ in range(4):
            ring.rotate("6 days")
        # Both are written: the copy meets the event at the index of the old one.
        assert ring.phase() == 1
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(INBOX.take, new, ("e1", 0))
            until(lambda: waits(inbox), within=10, what="the copy to wait")
            old.commit()
            assert waiting.result(patient(10)) == DUPLICATE
        new.commit()
        ring.rotate("6 days")
        assert ring.phase() == 2
        assert INBOX.take(new, ("e1", 0)) == DUPLICATE


def test_a_snapshot_from_before_the_turn_is_refused_and_not_wrong(inbox: str) -> None:
    ring = Ring(inbox)
    with psycopg.connect(inbox) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT 1 FROM inbox.migrations")
        with psycopg.connect(inbox) as tx:
            INBOX.take(tx, ("e1", 0))
        ring.turn()
        with pytest.raises(errors.SerializationFailure, match="try it again"):
            INBOX.take(old, ("e1", 0))
        old.rollback()
        assert INBOX.take(old, ("e1", 0)) == DUPLICATE


def test_no_event_is_taken_twice_while_the_turn_passes_on(inbox: str) -> None:
    """Four handlers race for the same events, in transactions that last, across many turns."""
    ring, stop = Ring(inbox), threading.Event()

    def race(seed: int) -> int:
        taken = 0
        levels = [None, psycopg.IsolationLevel.REPEATABLE_READ]
        with psycopg.connect(inbox) as conn:
            conn.isolation_level = levels[seed % 2]
            for number in range(300):
                try:
                    new = INBOX.take(conn, (f"e{number}", 0)) is None
                    stop.wait(0.001 * (number % 3))
                    conn.commit()
                    taken += new
                except errors.SerializationFailure:
                    conn.rollback()
        return taken

    def turn() -> int:
        turns = 0
        while not stop.is_set():
            ring.age()
            ring.rotate("6 days")
            turns += 1
        return turns

    with ThreadPoolExecutor(5) as pool:
        turning = pool.submit(turn)
        racing = [pool.submit(race, seed) for seed in range(4)]
        taken = sum(each.result(patient(60)) for each in racing)
        stop.set()
        assert turning.result(patient(10)) > 5
    assert ring.phase() > 4
    assert taken == 300


@pytest.fixture
def consumer_role(inbox: str) -> Iterator[str]:
    with psycopg.connect(inbox, autocommit=True) as admin:
        admin.execute("CREATE ROLE test_inbox_consumer LOGIN PASSWORD 'x'")
        try:
            yield "test_inbox_consumer"
        finally:
            admin.execute("DROP OWNED BY test_inbox_consumer")
            admin.execute("DROP ROLE test_inbox_consumer")


def as_consumer(dsn: str, role: str) -> str:
    return psycopg.conninfo.make_conninfo(dsn, user=role, password="x")  # noqa: S106  # of this test's role


def test_a_consumer_can_do_its_duty_and_nothing_else(inbox: str, consumer_role: str) -> None:
    with psycopg.connect(inbox) as owner:
        inbox_schema.install(owner, consumers=[consumer_role])
    with psycopg.connect(as_consumer(inbox, consumer_role)) as tx:
        inbox_schema.require(tx)
        assert INBOX.take(tx, ("e1", 0)) is None
        INBOX.again(tx, ("e1", 0), Again(timedelta(0)))
        tx.execute("SELECT inbox.rotate('7 days')")
    for forbidden in ("SELECT FROM inbox.handled", "DELETE FROM inbox.handled_0"):
        with refused(as_consumer(inbox, consumer_role)) as tx:
            tx.execute(forbidden.encode())


def refused(dsn: str) -> AbstractContextManager[Any]:
    return _Refused(dsn)


class _Refused:
    def __init__(self, dsn: str) -> None:
        self._conn = psycopg.connect(dsn)

    def __enter__(self) -> psycopg.Connection:
        return self._conn

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._conn.close()
        assert kind is errors.InsufficientPrivilege
        return True


def test_an_upgrade_lets_those_go_on_who_consumed_before(
    database: str, consumer_role: str
) -> None:
    granted = "".join(
        f"GRANT {what} TO {consumer_role};"
        for what in (
            "USAGE ON SCHEMA inbox",
            "SELECT ON inbox.migrations",
            "EXECUTE ON FUNCTION inbox.take, inbox.take_many, inbox.again, inbox.rotate",
        )
    )
    with psycopg.connect(database) as owner:
        owner.execute("DROP SCHEMA inbox CASCADE")
        owner.execute(old_schemas.script(1, "inbox", part="inbox").encode())
        owner.execute(granted.encode())
        inbox_schema.install(owner)

    with psycopg.connect(as_consumer(database, consumer_role)) as tx:
        inbox_schema.require(tx)
        tx.execute("SELECT FROM inbox.held")


def test_a_role_without_its_rights_is_refused_with_the_command(
    inbox: str, consumer_role: str
) -> None:
    command = f"dovecote init inbox --consumer-role {consumer_role}"
    dsn = as_consumer(inbox, consumer_role)
    states = PostgresStates(dsn, "billing")
    with psycopg.connect(dsn) as tx, pytest.raises(NotAllowed, match=command):
        inbox_schema.require(tx)
    with psycopg.connect(inbox) as owner:
        inbox_schema.install(owner, consumers=[consumer_role])
        owner.execute(f"REVOKE DELETE ON inbox.held FROM {consumer_role}".encode())
    with psycopg.connect(dsn) as tx, pytest.raises(NotAllowed, match=command):
        inbox_schema.require(tx)
    with pytest.raises(NotAllowed, match=command):
        states.drop(Record("orders", 0, 0, 0, b"k", b"{}", [(ID, b"e1")]))
    states.close()
