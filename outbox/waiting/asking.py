"""Ask something on a caller's connection, in a transaction of its own."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import psycopg

from outbox.postgres.ours import async_cursor, cursor


class Asked(NamedTuple):
    """A statement with psycopg's placeholders, and its parameters."""

    query: str
    params: Sequence[object] = ()

    def numbered(self) -> str:
        """Return the query with Postgres' own placeholders."""
        first, *others = self.query.split("%s")
        return first + "".join(f"${nr}{text}" for nr, text in enumerate(others, 1))


def ask(conn: psycopg.Connection[Any], asked: Asked) -> list[Any]:
    """Execute a statement, and return its rows, if it has any."""
    with committed(conn):
        done = cursor(conn).execute(asked.query.encode(), asked.params or None)
        return done.fetchall() if done.description else []


async def ask_async(conn: Any, asked: Asked) -> list[Any]:  # noqa: ANN401  # psycopg's or asyncpg's
    """As `ask`, on a connection that has to be awaited."""
    if not isinstance(conn, psycopg.AsyncConnection):
        found: list[Any] = await conn.fetch(asked.numbered(), *asked.params)
        return found
    async with committed_async(conn):
        done = await async_cursor(conn).execute(asked.query.encode(), asked.params or None)
        return await done.fetchall() if done.description else []


@contextmanager
def committed(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """Commit what is executed in the block, whatever the connection's mode is."""
    if conn.autocommit:
        yield
        return
    with conn.transaction():
        yield


@asynccontextmanager
async def committed_async(conn: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """As `committed`, on an event loop."""
    if conn.autocommit:
        yield
        return
    async with conn.transaction():
        yield


def role(conn: Any) -> str:  # noqa: ANN401  # psycopg's or asyncpg's
    """Return the role as which the connection has logged in."""
    if isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        return conn.info.user
    return str(conn._params.user)  # noqa: SLF001  # it has no other name for it
