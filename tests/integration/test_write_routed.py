"""A session that has several engines writes events where its rows go, or not at all."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Delete, Engine, Update, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)
from sqlalchemy.pool import NullPool

from dedup.rules.identity import Identity
from outbox import Event, NoTransaction, UnsupportedConnection, write, write_async
from tests.support.inboxes import INBOX
from tests.support.writers import url
from tests.support.written import stored

EVENT = Event(topic="orders", type="OrderPlaced", value=b"1")
READ_ONLY = {"options": "-c default_transaction_read_only=on"}


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class Routing(Session):
    """The recipe of SQLAlchemy's documentation."""

    def __init__(self, leader: Any, follower: Any) -> None:
        super().__init__()
        self.leader, self.follower = leader, follower

    def get_bind(self, mapper: Any = None, clause: Any = None, **_: Any) -> Any:  # noqa: ARG002  # as in the recipe
        writes = self._flushing or isinstance(clause, Update | Delete)
        return self.leader if writes else self.follower


class RoutingAsync(Session):
    leader: Any
    follower: Any
    get_bind = Routing.get_bind


def publish(tx: Any) -> None:
    write(tx, EVENT)


def take(tx: Any) -> None:
    assert INBOX.take(tx, Identity("/s", "e1")) is None


USES = pytest.mark.parametrize("use", [publish, take])
Use = Callable[[Any], None]


@pytest.fixture
def both(both: str) -> str:
    """The same database, with orders that a commit may refuse."""
    with psycopg.connect(both) as conn:
        conn.execute("DROP TABLE IF EXISTS parts")
        conn.execute(
            "CREATE TABLE parts (id int REFERENCES orders(id) DEFERRABLE INITIALLY DEFERRED)"
        )
    return both


@pytest.fixture
def leader(both: str) -> Iterator[Engine]:
    engine = sqlalchemy.create_engine(url(both, "psycopg"), poolclass=NullPool)
    yield engine
    with psycopg.connect(both) as conn:
        conn.execute("DROP TABLE parts")


@pytest.fixture
def follower(both: str) -> Engine:
    return sqlalchemy.create_engine(
        url(both, "psycopg"), poolclass=NullPool, connect_args=READ_ONLY
    )


@pytest.fixture
def other(both: str) -> Engine:
    return sqlalchemy.create_engine(url(both, "psycopg"), poolclass=NullPool)


def kept(dsn: str) -> int:
    """Return how many events are written and taken."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM inbox.handled").fetchone()
        assert row is not None
        return len(stored(dsn)) + int(row[0])


@USES
def test_an_event_goes_where_a_routing_session_writes(
    both: str, leader: Engine, follower: Engine, use: Use
) -> None:
    with Routing(leader, follower) as session:
        session.add(Order(id=1))
        use(session)
        assert kept(both) == 0
        session.commit()
    assert kept(both) == 1


@USES
def test_an_event_is_not_committed_without_the_order(
    both: str, leader: Engine, other: Engine, use: Use
) -> None:
    with Routing(leader, other) as session:
        use(session)
        session.add(Order(id=1))
        session.flush()
        session.execute(update(Order).values(id=2))
        session.connection(bind_arguments={"clause": delete(Order)}).exec_driver_sql(
            "INSERT INTO parts VALUES (999)"
        )
        with pytest.raises(IntegrityError):
            session.commit()
    assert kept(both) == 0


def test_an_async_session_is_routed_too(both: str, leader: Engine) -> None:
    async def scenario() -> None:
        engine = create_async_engine(url(both, "psycopg"), poolclass=NullPool)
        reading = create_async_engine(
            url(both, "psycopg"), poolclass=NullPool, connect_args=READ_ONLY
        )
        async with AsyncSession(sync_session_class=RoutingAsync) as session:
            session.sync_session.leader = engine.sync_engine  # type: ignore[attr-defined]  # ours
            session.sync_session.follower = reading.sync_engine  # type: ignore[attr-defined]  # ours
            session.add(Order(id=1))
            await write_async(session, EVENT)
            assert await INBOX.take_async(session, Identity("/s", "e1")) is None
            await session.commit()

    asyncio.run(scenario())
    assert kept(both) == 2
    assert leader.url.database


@USES
@pytest.mark.parametrize("first", ["rows", "event"])
def test_a_session_whose_rows_are_elsewhere_is_refused(
    both: str, leader: Engine, other: Engine, use: Use, first: str
) -> None:
    with Session(bind=other, binds={Order: leader}) as session:
        session.add(Order(id=1))
        if first == "rows":
            session.flush()
            with pytest.raises(NoTransaction, match=r"2 connections .* give the connection of"):
                use(session)
        else:
            session.autoflush = False
            use(session)
            with pytest.raises(NoTransaction, match="which commit one by one"):
                session.commit()
    assert kept(both) == 0


@USES
def test_a_session_that_has_also_read_elsewhere_is_refused_unless_given_a_connection(
    both: str, leader: Engine, follower: Engine, use: Use
) -> None:
    with Routing(leader, follower) as session:
        assert session.scalars(select(Order)).all() == []
        with pytest.raises(NoTransaction, match="2 connections"):
            use(session)
        session.rollback()
        assert session.scalars(select(Order)).all() == []
        session.add(Order(id=1))
        session.flush()
        use(session.connection(bind_arguments={"mapper": Order, "clause": update(Order)}))
        session.commit()
    assert kept(both) == 1


@USES
def test_the_next_transaction_may_use_any_connection(
    both: str, leader: Engine, follower: Engine, use: Use
) -> None:
    with Routing(leader, follower) as session:
        use(session)
        session.commit()
        assert session.scalars(select(Order)).all() == []
    assert kept(both) == 1


@USES
def test_savepoints_and_registries_have_one_connection(
    both: str, leader: Engine, use: Use
) -> None:
    registry = scoped_session(sessionmaker(leader))
    registry.add(Order(id=1))
    with registry.begin_nested():
        use(registry)
    registry.commit()
    registry.remove()
    assert kept(both) == 1


@USES
def test_a_session_without_an_engine_for_the_event_says_what_to_give(
    both: str, leader: Engine, use: Use
) -> None:
    with Session(binds={Order: leader}) as session:
        with pytest.raises(UnsupportedConnection, match='"clause": update'):
            use(session)
        use(session.connection(bind_arguments={"mapper": Order, "clause": update(Order)}))
        session.commit()
    assert kept(both) == 1


@USES
def test_in_two_phases_several_connections_are_one(
    both: str, leader: Engine, other: Engine, use: Use
) -> None:
    with Session(bind=other, binds={Order: leader}, twophase=True) as session:
        session.add(Order(id=1))
        session.flush()
        use(session)
        session.rollback()
    assert kept(both) == 0
