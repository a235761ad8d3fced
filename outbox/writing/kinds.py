"""
What the connections of each library look like to a type checker.

By what tells them apart, so that none of the libraries has to be there to be checked against.
"""

# ruff: noqa: ANN401  # that they take and give whatever the library says is the point
from typing import Any, Protocol, TypeAlias

import psycopg


class SQLAlchemySession(Protocol):
    """`sqlalchemy.orm.Session`, and `scoped_session`."""

    def flush(self, objects: Any = None) -> None: ...
    def query(self, *entities: Any, **kwargs: Any) -> Any: ...


class SQLAlchemyConnection(Protocol):
    """`sqlalchemy.Connection`."""

    def begin_twophase(self, xid: Any = None) -> Any: ...
    def exec_driver_sql(self, statement: str, parameters: Any = None) -> Any: ...


class SQLAlchemyAsync(Protocol):
    """`sqlalchemy.ext.asyncio.AsyncSession` and `AsyncConnection`."""

    async def run_sync(self, fn: Any, *args: Any, **kwargs: Any) -> Any: ...


class SQLAlchemyAsyncScoped(Protocol):
    """`sqlalchemy.ext.asyncio.async_scoped_session`."""

    async def flush(self, objects: Any = None) -> None: ...
    async def remove(self) -> None: ...


class DjangoConnection(Protocol):
    """`django.db.connection`, and what `django.db.connections` holds."""

    vendor: str

    def get_autocommit(self) -> bool: ...


class AsyncpgConnection(Protocol):
    """`asyncpg.Connection`, and what `Pool.acquire` gives."""

    def is_in_transaction(self) -> bool: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...


SyncConnection: TypeAlias = (
    psycopg.Connection[Any] | SQLAlchemySession | SQLAlchemyConnection | DjangoConnection
)
AsyncConnection: TypeAlias = (
    psycopg.AsyncConnection[Any] | SQLAlchemyAsync | SQLAlchemyAsyncScoped | AsyncpgConnection
)
