"""`outbox.sqlalchemy.record` with listeners and savepoints that a session does not expect."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    Session,
    SessionTransaction,
    object_session,
)
from sqlalchemy.pool import NullPool

from outbox import NoTransaction, schema
from outbox.sqlalchemy import record
from tests.support.recording import Order, of, rows, values
from tests.support.writers import url


@pytest.fixture
def shop(database: str) -> str:
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("CREATE TABLE orders (id int PRIMARY KEY, state text NOT NULL)")
    return database


@pytest.fixture
def engine(shop: str) -> Iterator[Engine]:
    made = sqlalchemy.create_engine(url(shop, "psycopg"), poolclass=NullPool)
    yield made
    made.dispose()


@contextmanager
def listening(target: Any, name: str, told: Callable[..., Any], **how: Any) -> Iterator[None]:
    sqlalchemy.event.listen(target, name, told, **how)
    try:
        yield
    finally:
        sqlalchemy.event.remove(target, name, told)


def nothing_to_flush(session: Session, *_: Any) -> None:
    """Record an event in a flush of which nothing is left."""
    for each in list(session.new):
        session.expunge(each)
    record(session, of(7))


def test_a_flush_that_a_listener_stopped_does_not_hide_a_later_event(
    shop: str, engine: Engine
) -> None:
    def refuse(session: Session, *_: Any) -> None:
        if session.new:
            raise ValueError

    def tell(session: Session) -> None:
        record(session, of(9))

    with (
        Session(engine) as session,
        listening(session, "before_flush", refuse),
        listening(session, "before_commit", tell),
    ):
        record(session, of(1))
        order = Order(id=1)
        session.add(order)
        with suppress(ValueError):
            session.flush()
        session.expunge(order)
        session.commit()
    assert values(shop) == ["1", "9"]


def test_an_event_of_a_flush_with_nothing_to_flush_is_committed(shop: str, engine: Engine) -> None:
    with Session(engine) as session, listening(session, "before_flush", nothing_to_flush):
        session.add(Order(id=1))
        session.commit()
    assert values(shop) == ["7"]


@pytest.mark.parametrize("mode", ["rollback_only", "control_fully", "create_savepoint"])
def test_so_it_is_in_the_transaction_of_a_connection(shop: str, engine: Engine, mode: Any) -> None:
    with engine.connect() as conn:
        outer = conn.begin()
        with (
            Session(conn, join_transaction_mode=mode) as session,
            listening(session, "before_flush", nothing_to_flush),
        ):
            session.add(Order(id=1))
            session.commit()
        if outer.is_active:
            outer.commit()
    assert values(shop) == ["7"]


def test_a_savepoint_of_the_connection_loses_no_event_from_before_it(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        session.execute(text("INSERT INTO orders VALUES (1, 'a')"))
        record(session, of(1))
        savepoint = session.connection().begin_nested()
        session.add(Order(id=2))
        session.flush()
        savepoint.rollback()
        session.expunge_all()
        session.commit()
    assert (values(shop), rows(shop)) == (["1"], 1)


def test_a_savepoint_of_the_connection_takes_the_events_within_it(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        savepoint = session.connection().begin_nested()
        record(session, of(1))
        with session.begin_nested():
            record(session, of(2))
        session.flush()
        savepoint.rollback()
        record(session, of(3))
        with session.connection().begin_nested():
            record(session, of(4))
            session.add(Order(id=5))
            session.flush()
        session.commit()
    assert values(shop) == ["3", "4"]


@pytest.mark.parametrize("name", ["after_rollback", "after_commit"])
def test_a_transaction_that_is_over_takes_no_event(shop: str, engine: Engine, name: str) -> None:
    refused = []

    def late(session: Session) -> None:
        with pytest.raises(NoTransaction, match="is over, and takes no more events"):
            record(session, of(1))
        refused.append(name)

    with Session(engine) as session, listening(session, name, late):
        session.execute(text("SELECT 1"))
        if name == "after_commit":
            session.commit()
        else:
            session.rollback()
        session.commit()
    assert refused
    assert values(shop) == []


def test_a_failed_transaction_takes_no_event_before_its_rollback(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        session.add(Order(id=1, state="a"))
        session.flush()
        session.expunge_all()
        session.add(Order(id=1, state="b"))
        with pytest.raises(IntegrityError):
            session.flush()
        with pytest.raises(NoTransaction, match="roll it back"):
            record(session, of(1))
        session.rollback()
        record(session, of(2))
        session.commit()
    assert values(shop) == ["2"]


def test_a_listener_of_the_end_records_in_the_next_transaction(shop: str, engine: Engine) -> None:
    told: list[int] = []

    def ended(session: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None and not told:
            told.append(1)
            record(session, of(5))

    with (
        listening(Session, "after_transaction_end", ended, insert=True),
        Session(engine) as session,
    ):
        record(session, of(1))
        session.rollback()
        session.commit()
    assert values(shop) == ["5"]


def test_listeners_of_rows_record_with_their_rows(shop: str, engine: Engine) -> None:
    def inserted(_mapper: Any, _conn: Any, row: Order) -> None:
        session = object_session(row)
        assert session is not None
        record(session, of(row.id))

    with listening(Order, "after_insert", inserted), Session(engine) as session:
        session.add_all([Order(id=1), Order(id=2)])
        session.commit()
        session.add(Order(id=3))
        session.flush()
        session.rollback()
        session.commit()
    assert values(shop) == ["1", "2"]


def test_a_flush_that_fails_in_a_savepoint_takes_only_its_own_events(
    shop: str, engine: Engine
) -> None:
    with Session(engine) as session:
        record(session, of(1))
        with suppress(IntegrityError), session.begin_nested():
            record(session, of(2))
            session.add(Order(id=1))
            session.flush()
            session.expunge_all()
            session.add(Order(id=1))
            record(session, of(3))
            session.flush()
        record(session, of(4))
        session.commit()
    assert (values(shop), rows(shop)) == (["1", "4"], 0)
