"""Write events on the caller's connection, in the caller's transaction."""

from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, errors
from psycopg.pq import TransactionStatus

from outbox import schema as _schema
from outbox import statements
from outbox.errors import NotAllowed, NoTransaction, SchemaMissing
from outbox.event import Event, Limits

_DEFAULT_LIMITS = Limits()
_NOT_INSTALLED = (errors.UndefinedFunction, errors.InvalidSchemaName)


def write(
    conn: Connection[Any],
    *events: Event,
    schema: str = _schema.DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """
    Write events so that they commit, or vanish, with the caller's own rows.

    One round trip, however many events; their order is kept. Never begins, commits or rolls back.
    Events of one key reach Kafka in the order of these calls if each writer takes the lock that
    serialises the key (the row it updates, say) *before* it calls.

    Raises:
        NoTransaction: `conn` is in autocommit mode outside a transaction block.
        InvalidEvent: an event could never be published; none was written.
        NotAllowed: the role may not write events here.
        SchemaMissing: the outbox is not installed in this database.
    """
    _require_transaction(conn.info.transaction_status, autocommit=conn.autocommit)
    if not events:
        return
    statement = statements.append(events, schema=schema, limits=limits)
    try:
        # Not conn.execute: the connection may be one of other cursors, with other placeholders.
        Cursor(conn).execute(*statement)
    except _NOT_INSTALLED as error:
        raise _missing(schema, conn.info.dbname) from error
    except errors.InsufficientPrivilege as error:
        raise _not_allowed(schema, conn.info.user, error) from error


async def write_async(
    conn: AsyncConnection[Any],
    *events: Event,
    schema: str = _schema.DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """As `write`, on an async connection."""
    _require_transaction(conn.info.transaction_status, autocommit=conn.autocommit)
    if not events:
        return
    statement = statements.append(events, schema=schema, limits=limits)
    try:
        await AsyncCursor(conn).execute(*statement)
    except _NOT_INSTALLED as error:
        raise _missing(schema, conn.info.dbname) from error
    except errors.InsufficientPrivilege as error:
        raise _not_allowed(schema, conn.info.user, error) from error


def _require_transaction(status: TransactionStatus, *, autocommit: bool) -> None:
    if autocommit and status is TransactionStatus.IDLE:
        msg = "connection is in autocommit mode; open `with conn.transaction():` around the write"
        raise NoTransaction(msg)


def _missing(schema: str, database: str) -> SchemaMissing:
    msg = f"the outbox is not installed in schema {schema!r} of {database!r}; {_schema.ADVICE}"
    return SchemaMissing(msg)


def _not_allowed(schema: str, role: str, error: errors.InsufficientPrivilege) -> NotAllowed:
    msg = f"{error.diag.message_primary}; {_schema.advice('writer', role, schema)}"
    return NotAllowed(msg)
