"""Ask something on a caller's connection, in a transaction of its own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg

from outbox.postgres.ours import async_cursor, cursor
from outbox.writing.statements import Statement


def ask(conn: psycopg.Connection[Any], asked: Statement) -> list[str]:
    """
    Execute a statement, and return the first column of its rows, if it has any.

    An answer that is read has to be of type cstring, which no codec of an application reaches.
    """
    with committed(conn):
        done = cursor(conn).execute(asked.query, asked.params or None)
        return [row[0] for row in done.fetchall()] if done.description else []


async def ask_async(conn: Any, asked: Statement) -> list[str]:  # noqa: ANN401  # psycopg's or asyncpg's
    """As `ask`, on a connection that has to be awaited."""
    if not isinstance(conn, psycopg.AsyncConnection):
        return [row[0] for row in await conn.fetch(asked.numbered(), *asked.texts())]
    async with committed_async(conn):
        done = await async_cursor(conn).execute(asked.query, asked.params or None)
        return [row[0] for row in await done.fetchall()] if done.description else []


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
