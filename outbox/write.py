"""Write events on the caller's connection, in the caller's transaction."""

from typing import Any

from outbox.event import Event, Limits
from outbox.postgres.defaults import DEFAULT_SCHEMA
from outbox.writing import find as adapters
from outbox.writing.append import Append
from outbox.writing.declared import to_event
from outbox.writing.kinds import AsyncConnection, SyncConnection

_DEFAULT_LIMITS = Limits()


def write(
    conn: SyncConnection,
    *events: Event[Any] | object,
    schema: str = DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """
    Write events so that they commit, or vanish, with the caller's own rows.

    An event is an `Event`, or an object of a class that `outbox.event` has declared. `conn` is a
    psycopg 3 connection, a SQLAlchemy session or connection, or a Django connection.
    Executes one statement, however many events there are, and keeps their order. Never begins,
    commits or rolls back.

    Events with the same key reach Kafka in the order of these calls if each writer takes the lock
    that serialises the key (such as the row that it updates) *before* it calls.

    Raises:
        UnsupportedConnection: `conn` is none of these, or has to be awaited; also a `TypeError`.
        NoTransaction: `conn` is in autocommit mode outside a transaction block, or a session's
            transaction has several connections.
        InvalidEvent: an event could never be published; none was written.
        NotAllowed: the role may not write events here.
        SchemaMissing: the outbox is not installed in this database.
    """
    adapters.write(conn, Append([to_event(each) for each in events], schema, limits))


async def write_async(
    conn: AsyncConnection,
    *events: Event[Any] | object,
    schema: str = DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """
    As `write`, on a connection that has to be awaited.

    `conn` is an async psycopg 3 connection, an async SQLAlchemy session or connection, or an
    asyncpg connection, including one from its pool.
    """
    await adapters.write_async(conn, Append([to_event(each) for each in events], schema, limits))
