"""`outbox.sqlalchemy.record`: events that a session writes with its rows, or not at all."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Engine, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.orm import sessionmaker as maker
from sqlalchemy.pool import NullPool

from outbox import (
    InvalidEvent,
    Limits,
    NotAllowed,
    NoTransaction,
    SchemaMissing,
    UnsupportedConnection,
    event,
    schema,
)
from outbox.sqlalchemy import record
from tests.support.recording import Order, of, rows, values
from tests.support.writers import url


@pytest.fixture
def shop(database: str) -> str:
    """A database with an outbox, and a table whose constraint is looked at by COMMIT."""
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL,"
            " UNIQUE (state) DEFERRABLE INITIALLY DEFERRED)"
        )
    return database


@pytest.fixture
def engine(shop: str) -> Iterator[Engine]:
    made = sqlalchemy.create_engine(url(shop, "psycopg"), poolclass=NullPool)
    yield made
    made.dispose()


def seen(session: Session) -> list[str]:
    """Return the numbers of the events that the session's own transaction has written."""
    query = sqlalchemy.text("SELECT value FROM outbox.events ORDER BY position")
    return [bytes(each).decode() for each in session.connection().execute(query).scalars()]


def fails(session: Session) -> None:
    """Flush an event in the block of a savepoint that raises."""
    with suppress(ZeroDivisionError), session.begin_nested():
        record(session, of(4))
        session.add(Order(id=2))
        session.flush()
        raise ZeroDivisionError


def test_events_commit_with_the_rows_in_the_order_in_which_they_were_recorded(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session, session.begin():
        record(session, of(1), of(2))
        session.add(Order(id=1))
        record(session, of(3))
        assert values(shop) == []
    assert values(shop) == ["1", "2", "3"]
    assert rows(shop) == 1


def test_a_session_that_has_only_events_writes_them(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        record(session, of(1))
        session.commit()
        record(session, of(2))
        session.commit()
        session.commit()
    assert values(shop) == ["1", "2"]


def test_a_rollback_takes_recorded_and_flushed_events_away(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        record(session, of(1))
        session.flush()
        record(session, of(2))
        session.rollback()
        record(session, of(3))
        session.commit()
    assert values(shop) == ["3"]


def test_an_event_recorded_before_anything_else_vanishes_with_a_rollback_too(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        record(session, of(1))
        session.rollback()
        session.commit()
        record(session, of(2))
        session.close()
        session.commit()
        record(session, of(3))
    assert values(shop) == []


def test_flushed_twice_each_event_is_written_once_and_after_its_rows(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        session.add(Order(id=1, state="a"))
        record(session, of(1))
        session.flush()
        assert seen(session) == ["1"]
        session.add(Order(id=2, state="b"))
        record(session, of(2))
        session.flush()
        session.flush()
        assert seen(session) == ["1", "2"]
        session.commit()
    assert values(shop) == ["1", "2"]


def test_a_savepoint_that_is_rolled_back_takes_only_its_own_events(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        record(session, of(1))
        for number, flushes in ((2, False), (3, True)):
            savepoint = session.begin_nested()
            session.add(Order(id=number))
            record(session, of(number))
            if flushes:
                # The first event is written here, within the savepoint, and is to be kept.
                session.flush()
                assert seen(session) == ["1", str(number)]
            savepoint.rollback()
        with session.begin_nested():
            record(session, of(4))
            inner = session.begin_nested()
            record(session, of(5))
            inner.rollback()
        record(session, of(6))
        session.commit()
    assert values(shop) == ["1", "4", "6"]
    assert rows(shop) == 0


def test_a_released_savepoint_vanishes_with_the_one_around_it(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        outer = session.begin_nested()
        record(session, of(1))
        with session.begin_nested():
            record(session, of(2))
            session.add(Order(id=1))
        outer.rollback()
        record(session, of(3))
        fails(session)
        session.commit()
    assert values(shop) == ["3"]


def test_a_commit_of_the_transaction_commits_savepoints_that_are_open(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        root = session.begin()
        record(session, of(1))
        session.begin_nested()
        record(session, of(2))
        root.commit()
    assert values(shop) == ["1", "2"]


def test_a_commit_that_fails_leaves_no_event(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        session.add_all([Order(id=1, state="same"), Order(id=2, state="same")])
        record(session, of(1))
        session.flush()
        record(session, of(2))
        with pytest.raises(IntegrityError, match="orders_state_key"):
            session.commit()
        session.rollback()
        session.commit()
    assert values(shop) == []
    assert rows(shop) == 0


def test_a_flush_that_fails_leaves_no_event(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        record(session, of(1))
        session.add_all([Order(id=1, state="a")])
        session.flush()
        session.execute(insert(Order).values(id=2, state="b"))
        session.add(Order(id=2, state="c"))
        record(session, of(2))
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()
        record(session, of(3))
        session.commit()
    assert values(shop) == ["3"]


def test_bulk_statements_and_many_events(shop: str, engine: Engine) -> None:
    statements = []

    def told(_conn: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sqlalchemy.event.listen(engine, "before_cursor_execute", told)
    with Session(engine) as session:
        session.execute(insert(Order), [{"id": n, "state": str(n)} for n in range(500)])
        session.bulk_insert_mappings(Order.__mapper__, [{"id": 900, "state": "bulk"}])
        for number in range(500):
            record(session, of(number))
        session.commit()
    assert values(shop) == [str(number) for number in range(500)]
    assert len([each for each in statements if "append" in each]) == 1


def test_listeners_of_the_application_may_record(shop: str, engine: Engine) -> None:
    session = Session(engine)
    names = ("before_flush", "after_flush", "after_flush_postexec", "before_commit")
    for number, name in enumerate(names):

        def listener(given: Session, *_: Any, _number: int = number) -> None:
            record(given, of(_number))

        sqlalchemy.event.listen(session, name, listener)
    with session:
        session.add(Order(id=1))
        session.commit()
    # The session's own listener for commits comes first, with the flush that it asks for.
    assert sorted(values(shop)) == ["0", "1", "2", "3"]
    assert rows(shop) == 1


def test_an_event_of_a_commit_comes_after_the_rows_of_the_same_listener(
    shop: str, engine: Engine
) -> None:
    session = Session(engine, autoflush=False)

    def listener(given: Session) -> None:
        given.add(Order(id=7))
        record(given, of(7))

    sqlalchemy.event.listen(session, "before_commit", listener)
    with session:
        session.commit()
    assert (values(shop), rows(shop)) == (["7"], 1)


def test_a_bad_event_is_refused_at_once(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        record(session, of(1))
        with pytest.raises(InvalidEvent, match=r"value\.lines\[1\]"):
            record(session, of(2), of(3, value={"lines": [1, object()]}))
        with pytest.raises(InvalidEvent, match="the limit is 2"):
            record(session, of(4, value=b"123"), limits=Limits(value=2))
        with pytest.raises(InvalidEvent, match="an event is an outbox"):
            record(session, object())
        with pytest.raises(InvalidEvent, match="Kafka's or Dovecote's own"):
            record(session, of(5, topic="__offsets"))
        session.commit()
    assert values(shop) == ["1"]


def test_an_event_is_written_as_it_was_recorded(shop: str, engine: Engine) -> None:
    @event("Placed", topic="orders", key="order")
    class Placed:
        def __init__(self, order: int) -> None:
            self.order = order

    with Session(engine) as session:
        value = {"state": "placed"}
        record(session, of(1, value=value))
        value["state"] = "changed"
        record(session)
        session.commit()
        with pytest.raises(InvalidEvent, match="cannot be written as JSON"):
            record(session, Placed(1))
    assert values(shop) == ['{"state":"placed"}']


def test_what_is_no_session_is_refused(shop: str, engine: Engine) -> None:
    with (
        engine.connect() as conn,
        psycopg.connect(shop) as driver,
        pytest.raises(UnsupportedConnection, match=r"not Connection; on a connection call `write"),
    ):
        record(conn, of(1))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedConnection, match="a session of SQLAlchemy, not Connection"):
        record(driver, of(1))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedConnection, match=r"through sqlite\+pysqlite"):
        record(Session(sqlalchemy.create_engine("sqlite://")), of(1))
    with pytest.raises(UnsupportedConnection, match="no engine for other tables than its own"):
        record(Session(), of(1))


def test_a_session_that_begins_nothing_has_to_be_begun(shop: str, engine: Engine) -> None:
    with Session(engine, autobegin=False) as session:
        with pytest.raises(NoTransaction, match=r"call session\.begin"):
            record(session, of(1))
        with session.begin():
            record(session, of(2))
    assert values(shop) == ["2"]


def test_autocommit_is_refused_before_an_event_is_written(shop: str, engine: Engine) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        record(session, of(1))
        with pytest.raises(NoTransaction, match="autocommit"):
            session.commit()
    assert values(shop) == []


def test_errors_of_the_database_come_with_the_commit(shop: str, engine: Engine) -> None:
    with Session(engine) as session:
        record(session, of(1), schema="elsewhere")
        with pytest.raises(SchemaMissing, match="elsewhere"):
            session.commit()
        session.rollback()
        session.execute(sqlalchemy.text("SET ROLE pg_monitor"))
        record(session, of(2))
        with pytest.raises(NotAllowed):
            session.commit()
    assert values(shop) == []


def test_a_scoped_session_and_one_of_a_sessionmaker(shop: str, engine: Engine) -> None:
    registry = scoped_session(maker(engine))
    record(registry, of(1))
    registry.commit()
    registry.remove()
    with maker(engine).begin() as session:
        record(session, of(2))
    assert values(shop) == ["1", "2"]


def test_a_session_within_the_transaction_of_a_connection(shop: str, engine: Engine) -> None:
    with engine.connect() as conn:
        outer = conn.begin()
        with Session(conn, join_transaction_mode="create_savepoint") as session:
            record(session, of(1))
            session.commit()
            assert seen(session) == ["1"]
        outer.rollback()
    assert values(shop) == []
