"""Write on psycopg 3's connections."""

from typing import Any

from psycopg import AsyncConnection, Connection, errors

from outbox.errors import DovecoteError
from outbox.postgres.ours import async_cursor, cursor
from outbox.postgres.standing import hear, hear_async, in_pipeline, is_open
from outbox.writing.append import Append, autocommit
from outbox.writing.find import Way

ADVICE = "give the connection itself: of a pool `pool.connection()`, of a cursor its `connection`"


def way(kind: type) -> Way | None:
    """Return how events are written on connections of this class."""
    if issubclass(kind, Connection):
        return Way(_write, awaits=False)
    if issubclass(kind, AsyncConnection):
        return Way(_write_async, awaits=True)
    return None


def _write(conn: Connection[Any], append: Append) -> None:
    if in_pipeline(conn):
        hear(conn)
    require_transaction(conn)
    if not append.events:
        return
    statement = append.statement()
    try:
        # Not conn.execute: the connection may have a cursor class with other placeholders.
        cursor(conn).execute(_encoded(conn, statement.query), statement.params)
    except errors.ProgrammingError as error:
        if explained := _explained(conn, append, error):
            raise explained from error
        raise


async def _write_async(conn: AsyncConnection[Any], append: Append) -> None:
    if in_pipeline(conn):
        await hear_async(conn)
    require_transaction(conn)
    if not append.events:
        return
    statement = append.statement()
    try:
        await async_cursor(conn).execute(_encoded(conn, statement.query), statement.params)
    except errors.ProgrammingError as error:
        if explained := _explained(conn, append, error):
            raise explained from error
        raise


def _encoded(conn: Connection[Any] | AsyncConnection[Any], query: bytes) -> bytes:
    """
    Return the query in the session's encoding, which matters if the schema's name is not ASCII.
    """
    if query.isascii():
        return query
    encoding = conn.info.encoding
    return query if encoding == "ascii" else query.decode().encode(encoding)


def require_transaction(conn: Connection[Any] | AsyncConnection[Any]) -> None:
    """
    Check that something ties an event to the caller's rows.

    Raises:
        NoTransaction: the connection would commit each statement by itself.
    """
    if not is_open(conn):
        block = "async with" if isinstance(conn, AsyncConnection) else "with"
        remedy = f"open `{block} conn.transaction():` around the write"
        raise autocommit(remedy)


def _explained(
    conn: Connection[Any] | AsyncConnection[Any], append: Append, error: errors.ProgrammingError
) -> DovecoteError | None:
    return append.explained(error, database=conn.info.dbname, role=conn.info.user)
