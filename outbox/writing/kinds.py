"""
Describe the connections of each library to a type checker.

The protocols name only what tells the classes apart, so that type checking needs none of the
libraries.
"""

# ruff: noqa: ANN401 # these take and return whatever the library's own methods do
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
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
    """`django.db.connection`, and the members of `django.db.connections`."""

    vendor: str

    def get_autocommit(self) -> bool: ...


class AsyncpgConnection(Protocol):
    """`asyncpg.Connection`, and the proxy that `Pool.acquire` returns."""

    def is_in_transaction(self) -> bool: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...


if TYPE_CHECKING:
    SyncConnection: TypeAlias = (
        psycopg.Connection[Any] | SQLAlchemySession | SQLAlchemyConnection | DjangoConnection
    )
    AsyncConnection: TypeAlias = (
        psycopg.AsyncConnection[Any] | SQLAlchemyAsync | SQLAlchemyAsyncScoped | AsyncpgConnection
    )
else:
    # psycopg is four fifths of what an import of `outbox` would cost, and not everybody uses it.
    SyncConnection = AsyncConnection = Any
