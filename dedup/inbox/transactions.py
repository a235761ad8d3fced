"""
Run one query in the handler's transaction, whichever library it is from.

Never begins, commits or rolls back.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import psycopg

from outbox.errors import NoTransaction, UnsupportedConnection
from outbox.postgres.ours import Ours, async_cursor, cursor
from outbox.postgres.standing import hear, hear_async, in_pipeline, is_open
from outbox.writing.kinds import SQLAlchemyAsync, SQLAlchemyConnection, SQLAlchemySession

Transaction: TypeAlias = psycopg.Connection[Any] | SQLAlchemySession | SQLAlchemyConnection
"""The transaction that a handler gets: psycopg's connection, or SQLAlchemy's."""

AsyncTransaction: TypeAlias = psycopg.AsyncConnection[Any] | SQLAlchemyAsync
"""The same, for async handlers."""


class Question(NamedTuple):
    """A call of a function in SQL, with its parameters."""

    schema: str
    call: str
    params: Sequence[object]
    read: Callable[[str], Any] | None
    """Returns the function's value, given its text; None if it has none."""


class Answer(NamedTuple):
    """The value of a question, and psycopg's `pgconn` of the connection that was asked."""

    value: Any
    line: object


def ask(tx: object, question: Question) -> Answer:
    """
    Return the answer to `question` in the transaction of `tx`.

    Raises:
        NoTransaction: nothing ties it to the handler's own rows.
        UnsupportedConnection: `tx` is not such a connection.
    """
    if isinstance(tx, psycopg.Connection):
        if in_pipeline(tx):
            hear(tx)
        _require_transaction(tx)
        # Not tx.execute: the connection may have a cursor class with other rows.
        row = cursor(tx).execute(_select(question), question.params).fetchone()
        return Answer(None if row is None or question.read is None else row[0], tx.pgconn)
    if _root(tx) == "sqlalchemy":
        return _on_sqlalchemy(tx, question)
    raise _unsupported(tx)


async def ask_async(tx: object, question: Question) -> Answer:
    """As `ask`, for an async connection."""
    if isinstance(tx, psycopg.AsyncConnection):
        if in_pipeline(tx):
            await hear_async(tx)
        _require_transaction(tx)
        asked = await async_cursor(tx).execute(_select(question), question.params)
        row = await asked.fetchone()
        return Answer(None if row is None or question.read is None else row[0], tx.pgconn)
    if _root(tx) == "sqlalchemy" and hasattr(tx, "run_sync"):
        answer: Answer = await tx.run_sync(_on_sqlalchemy, question)
        return answer
    raise _unsupported(tx)


def _on_sqlalchemy(tx: Any, question: Question) -> Answer:  # noqa: ANN401  # a session or a connection
    # Not imported at the top, since most consumers have no SQLAlchemy.
    adapter = import_module("outbox.writing.sqlalchemy")
    conn = adapter.connection_for(tx, question.schema, "handled")
    if conn is None:
        raise _unsupported(tx)
    if conn.dialect.driver != "psycopg":
        msg = f"the inbox takes SQLAlchemy's psycopg driver, not {conn.dialect.driver}"
        raise UnsupportedConnection(msg)
    if not adapter.is_tied(conn):
        raise _autocommit()
    line = conn.connection.driver_connection.pgconn
    params = [Ours(param) for param in question.params]
    if question.read is None:
        adapter.run_on_psycopg(conn, f"SELECT {question.call}", params)
        return Answer(None, line)
    # The application may load integers as it likes. No column is of type cstring, so it is text.
    query = f"SELECT pg_catalog.textout(({question.call})::text)"
    text = adapter.run_on_psycopg(conn, query, params)
    return Answer(None if text is None else question.read(text), line)


def _select(question: Question) -> bytes:
    return f"SELECT {question.call}".encode()


def _require_transaction(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    if not is_open(conn):
        raise _autocommit()


def _autocommit() -> NoTransaction:
    msg = "connection is in autocommit mode; open a transaction around the handler"
    return NoTransaction(msg)


def _unsupported(tx: object) -> UnsupportedConnection:
    kind = tx.__class__
    msg = (
        f"the inbox cannot use {kind.__module__}.{kind.__qualname__}; give a connection of "
        "psycopg 3, or a session or connection of SQLAlchemy with its psycopg driver"
    )
    return UnsupportedConnection(msg)


def _root(tx: object) -> str:
    return next(
        (
            "sqlalchemy"
            for base in tx.__class__.__mro__  # not its type: it may be a proxy
            if base.__module__.partition(".")[0] == "sqlalchemy"
        ),
        "",
    )
