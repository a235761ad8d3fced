"""One interface for the connections of every library on which events are written."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import asyncpg
import psycopg
import sqlalchemy
from django.db import transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as aio
from sqlalchemy.pool import NullPool

from outbox import Event, write, write_async
from tests.support.fix_django import django_database

T = TypeVar("T")


class Writer(Protocol):
    """A connection in a transaction of the caller's."""

    conn: Any

    async def write(self, *events: Event, **options: Any) -> None: ...
    async def ask(self, query: str) -> Any:
        """Return the first column of the first row, if there is one."""

    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    def savepoint(self) -> AbstractAsyncContextManager[Any]: ...


class Undo(Exception):
    """Raised in a savepoint, to have it rolled back."""


def drive(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: Django refuses to work in an event loop."""
    try:
        scenario.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    scenario.close()
    msg = "a sync connection was waited for"
    raise AssertionError(msg)


class _Sync:
    def __init__(self, conn: Any) -> None:
        self.conn = conn

    async def write(self, *events: Event, **options: Any) -> None:
        write(self.conn, *events, **options)

    async def commit(self) -> None:
        self.conn.commit()

    async def rollback(self) -> None:
        self.conn.rollback()


class _Async:
    def __init__(self, conn: Any) -> None:
        self.conn = conn

    async def write(self, *events: Event, **options: Any) -> None:
        await write_async(self.conn, *events, **options)

    async def commit(self) -> None:
        await self.conn.commit()

    async def rollback(self) -> None:
        await self.conn.rollback()


class Psycopg(_Sync):
    async def ask(self, query: str) -> Any:
        cursor = self.conn.execute(query)
        return cursor.fetchone()[0] if cursor.description else None

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with self.conn.transaction():
            yield


class PsycopgAsync(_Async):
    async def ask(self, query: str) -> Any:
        cursor = await self.conn.execute(query)
        return (await cursor.fetchone())[0] if cursor.description else None

    def savepoint(self) -> Any:
        return self.conn.transaction()


class SQLAlchemy(_Sync):
    async def ask(self, query: str) -> Any:
        result = self.conn.execute(sqlalchemy.text(query))
        return result.scalar() if result.returns_rows else None

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with self.conn.begin_nested():
            yield


class SQLAlchemyAsync(_Async):
    async def ask(self, query: str) -> Any:
        result = await self.conn.execute(sqlalchemy.text(query))
        return result.scalar() if result.returns_rows else None

    def savepoint(self) -> Any:
        return self.conn.begin_nested()


class Django(_Sync):
    async def ask(self, query: str) -> Any:
        with self.conn.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()[0] if cursor.description else None

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        with transaction.atomic():
            yield


class Asyncpg(_Async):
    """asyncpg has no commit of its own: we end the transaction that was begun."""

    def __init__(self, conn: Any, transaction: Any) -> None:
        super().__init__(conn)
        self._transaction = transaction

    async def ask(self, query: str) -> Any:
        return await self.conn.fetchval(query)

    async def commit(self) -> None:
        await self._transaction.commit()
        await self._begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self._begin()

    async def _begin(self) -> None:
        self._transaction = self.conn.transaction()
        await self._transaction.start()

    def savepoint(self) -> Any:
        return self.conn.transaction()


def url(dsn: str, driver: str) -> sqlalchemy.URL:
    """Return the connection string in SQLAlchemy's form."""
    known: dict[str, Any] = {**conninfo_to_dict(dsn)}
    return sqlalchemy.URL.create(
        f"postgresql+{driver}",
        username=known.get("user"),
        password=known.get("password"),
        host=known.get("host"),
        port=int(known["port"]),
        database=known["dbname"],
    )


def address(dsn: str) -> str:
    """Return the connection string in asyncpg's form."""
    known = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    user = f"{known['user']}:{known.get('password', '')}"
    return f"postgresql://{user}@{known['host']}:{known['port']}/{known['dbname']}"


Level = dict[str, Any]


@asynccontextmanager
async def _psycopg(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
    conn = psycopg.connect(dsn, autocommit=autocommit)
    try:
        yield Psycopg(conn)
    finally:
        conn.close()


@asynccontextmanager
async def _psycopg_async(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
    conn = await psycopg.AsyncConnection.connect(dsn, autocommit=autocommit)
    try:
        yield PsycopgAsync(conn)
    finally:
        await conn.close()


def _level(*, autocommit: bool) -> Level:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}


@asynccontextmanager
async def _connection(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
    engine = sqlalchemy.create_engine(
        url(dsn, "psycopg"), poolclass=NullPool, **_level(autocommit=autocommit)
    )
    with engine.connect() as conn:
        yield SQLAlchemy(conn)


def _session(*, scoped: bool) -> Any:
    @asynccontextmanager
    async def open_session(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
        engine = sqlalchemy.create_engine(url(dsn, "psycopg"), poolclass=NullPool)
        make = orm.sessionmaker(
            engine.execution_options(**_level(autocommit=autocommit)), expire_on_commit=False
        )
        session: Any = orm.scoped_session(make) if scoped else make()
        try:
            yield SQLAlchemy(session)
        finally:
            session.close()

    return open_session


def _async_connection(driver: str) -> Any:
    @asynccontextmanager
    async def open_connection(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
        engine = aio.create_async_engine(
            url(dsn, driver), poolclass=NullPool, **_level(autocommit=autocommit)
        )
        async with engine.connect() as conn:
            yield SQLAlchemyAsync(conn)

    return open_connection


def _async_session(driver: str, *, scoped: bool = False) -> Any:
    @asynccontextmanager
    async def open_session(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
        engine = aio.create_async_engine(
            url(dsn, driver), poolclass=NullPool, **_level(autocommit=autocommit)
        )
        make = aio.async_sessionmaker(engine)
        session: Any = aio.async_scoped_session(make, lambda: None) if scoped else make()
        try:
            yield SQLAlchemyAsync(session)
        finally:
            await session.close()

    return open_session


def _django(**options: Any) -> Any:
    @asynccontextmanager
    async def open_connection(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
        with django_database(dsn, **options) as conn:
            conn.set_autocommit(autocommit)
            yield Django(conn)

    return open_connection


@asynccontextmanager
async def _asyncpg(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
    conn = await asyncpg.connect(address(dsn))
    try:
        writer = Asyncpg(conn, conn.transaction())
        if not autocommit:
            await writer._begin()
        yield writer
    finally:
        await conn.close()


@asynccontextmanager
async def _asyncpg_pool(dsn: str, *, autocommit: bool) -> AsyncIterator[Writer]:
    async with (
        asyncpg.create_pool(address(dsn), min_size=1, max_size=1) as pool,
        pool.acquire() as conn,
    ):
        writer = Asyncpg(conn, conn.transaction())
        if not autocommit:
            await writer._begin()
        yield writer


class Open(Protocol):
    """Opens a connection in which a transaction begins by itself, or one that has none."""

    def __call__(self, dsn: str, *, autocommit: bool) -> AbstractAsyncContextManager[Writer]: ...


class Library(NamedTuple):
    """How to open connections of one kind, and how to run coroutines on them."""

    open: Open
    run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    """None: an event loop."""


LIBRARIES = {
    "psycopg": Library(_psycopg, drive),
    "psycopg-async": Library(_psycopg_async),
    "sqlalchemy-connection": Library(_connection, drive),
    "sqlalchemy-session": Library(_session(scoped=False), drive),
    "sqlalchemy-scoped-session": Library(_session(scoped=True), drive),
    "sqlalchemy-async-connection-psycopg": Library(_async_connection("psycopg")),
    "sqlalchemy-async-connection-asyncpg": Library(_async_connection("asyncpg")),
    "sqlalchemy-async-session-psycopg": Library(_async_session("psycopg")),
    "sqlalchemy-async-session-asyncpg": Library(_async_session("asyncpg")),
    "sqlalchemy-async-scoped-session": Library(_async_session("asyncpg", scoped=True)),
    "django": Library(_django(), drive),
    "django-server-side-binding": Library(_django(server_side_binding=True), drive),
    "asyncpg": Library(_asyncpg),
    "asyncpg-pool": Library(_asyncpg_pool),
}
