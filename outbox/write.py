"""Write events on the caller's connection, in the caller's transaction."""

from outbox import schema as _schema
from outbox.event import Event, Limits
from outbox.writing import find as adapters
from outbox.writing.append import Append
from outbox.writing.kinds import AsyncConnection, SyncConnection

_DEFAULT_LIMITS = Limits()


def write(
    conn: SyncConnection,
    *events: Event,
    schema: str = _schema.DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """
    Write events so that they commit, or vanish, with the caller's own rows.

    `conn` is a psycopg 3 connection, a SQLAlchemy session or connection, or a Django connection.
    One statement, however many events; their order is kept. Never begins, commits or rolls back.
    Events of one key reach Kafka in the order of these calls if each writer takes the lock that
    serialises the key (the row it updates, say) *before* it calls.

    Raises:
        UnsupportedConnection: `conn` is none of these, or has to be awaited; a `TypeError` too.
        NoTransaction: `conn` is in autocommit mode outside a transaction block.
        InvalidEvent: an event could never be published; none was written.
        NotAllowed: the role may not write events here.
        SchemaMissing: the outbox is not installed in this database.
    """
    adapters.write(conn, Append(events, schema, limits))


async def write_async(
    conn: AsyncConnection,
    *events: Event,
    schema: str = _schema.DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """
    As `write`, on a connection that has to be awaited.

    `conn` is an async connection of psycopg 3, an async session or connection of SQLAlchemy, or a
    connection of asyncpg or of its pool.
    """
    await adapters.write_async(conn, Append(events, schema, limits))
