"""A proxy of a connection, as tracers make them, is what it stands for."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
import wrapt
from psycopg import AsyncConnection
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from dedup.inbox.connections import Connections
from dedup.rules.identity import Identity
from outbox import Event, NoTransaction, UnsupportedConnection, write, write_async
from tests.support.fix_django import django_database
from tests.support.inboxes import DUPLICATE, INBOX
from tests.support.writers import address, url
from tests.support.written import stored

EVENTS = [
    Event(topic="orders", type="OrderPlaced", value=str(n), headers=[("a", None)])
    for n in range(3)
]
E1 = Identity("/s", "e1")


class Traced(wrapt.ObjectProxy[Any]):
    """As of a tracer, which has a class of its own."""


PROXIES = pytest.mark.parametrize(
    "proxy", [wrapt.ObjectProxy, Traced, lambda it: Traced(Traced(it))]
)
Proxy = Callable[[Any], Any]


def publish(conn: Any) -> None:
    write(conn, EVENTS[0])
    write(conn, *EVENTS[1:])


async def publish_async(conn: Any) -> None:
    await write_async(conn, EVENTS[0])
    await write_async(conn, *EVENTS[1:])


def written(dsn: str) -> bool:
    return stored(dsn) == [event.value_bytes() for event in EVENTS]


@PROXIES
def test_a_proxy_of_psycopgs_connection_will_do(both: str, proxy: Proxy) -> None:
    with psycopg.connect(both) as conn:
        publish(proxy(conn))
        assert INBOX.take(proxy(conn), E1) is None
        assert INBOX.take(conn, E1) == DUPLICATE
    with psycopg.connect(both, autocommit=True) as conn:
        with conn.pipeline(), pytest.raises(NoTransaction):
            publish(proxy(conn))
        with conn.pipeline(), pytest.raises(NoTransaction):
            INBOX.take(proxy(conn), E1)
    assert written(both)


@PROXIES
def test_a_proxy_of_psycopgs_async_connection_will_do(both: str, proxy: Proxy) -> None:
    async def scenario() -> None:
        async with await AsyncConnection.connect(both) as conn:
            await publish_async(proxy(conn))
            assert await INBOX.take_async(proxy(conn), E1) is None
            with pytest.raises(UnsupportedConnection, match="has to be awaited"):
                write(proxy(conn), *EVENTS)

    asyncio.run(scenario())
    assert written(both)


@PROXIES
def test_proxies_of_sqlalchemys_and_below_it_will_do(both: str, proxy: Proxy) -> None:
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://", poolclass=NullPool, creator=lambda: proxy(psycopg.connect(both))
    )
    with engine.begin() as conn:
        write(conn, EVENTS[0])
        assert INBOX.take(proxy(conn), E1) is None
    with Session(engine) as session:
        write(proxy(session), EVENTS[1])
        assert INBOX.take(proxy(session), E1) == DUPLICATE
        session.commit()
    registry = scoped_session(sessionmaker(engine))
    write(proxy(registry), EVENTS[2])
    assert INBOX.take(proxy(registry), E1) == DUPLICATE
    registry.commit()
    registry.remove()
    assert written(both)


@PROXIES
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_proxies_of_sqlalchemys_async_connections_will_do(
    both: str, proxy: Proxy, driver: str
) -> None:
    async def scenario() -> None:
        engine = create_async_engine(url(both, driver), poolclass=NullPool)
        async with engine.begin() as conn:
            await write_async(proxy(conn), EVENTS[0])
        async with AsyncSession(engine) as session:
            await write_async(proxy(session), *EVENTS[1:])
            await session.commit()

    asyncio.run(scenario())
    assert written(both)


@PROXIES
def test_proxies_of_djangos_connection_and_below_it_will_do(dsn: str, proxy: Proxy) -> None:
    with django_database(dsn) as conn:
        conn.set_autocommit(False)
        conn.connection = proxy(conn.connection)
        publish(proxy(conn))
        conn.commit()
    assert written(dsn)


@PROXIES
def test_proxies_of_asyncpgs_connections_will_do(dsn: str, proxy: Proxy) -> None:
    async def scenario() -> None:
        pool = await asyncpg.create_pool(address(dsn), min_size=1, max_size=1)
        async with pool.acquire() as conn, conn.transaction():
            await write_async(proxy(conn), EVENTS[0])
        await pool.close()
        alone = await asyncpg.connect(address(dsn))
        async with alone.transaction():
            await write_async(proxy(alone), *EVENTS[1:])
        await alone.close()

    asyncio.run(scenario())
    assert written(dsn)


def test_connections_of_our_own_may_be_proxies(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer may have replaced `connect` of the driver's classes."""
    connect = psycopg.Connection.connect.__func__  # type: ignore[attr-defined]  # a class method

    def traced(kind: Any, *args: Any, **options: Any) -> Any:
        return Traced(connect(kind, *args, **options))

    monkeypatch.setattr(psycopg.Connection, "connect", classmethod(traced))
    for ours in (False, True):
        connections = Connections(both, ours=ours)
        with connections.begin() as conn:
            assert isinstance(conn, psycopg.Connection)
            assert INBOX.take(conn, Identity("/s", f"e{ours}")) is None
        connections.close()


def test_a_proxy_of_something_else_is_refused_by_its_name(both: str) -> None:
    for given in (Traced("dsn"), wrapt.ObjectProxy(object())):
        with pytest.raises(UnsupportedConnection, match=r"on builtins\.(str|object)"):
            write(given, *EVENTS)
        with pytest.raises(UnsupportedConnection, match=r"cannot use builtins\.(str|object)"):
            INBOX.take(given, E1)
    assert stored(both) == []
