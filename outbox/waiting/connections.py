"""Find the driver's connection on which a caller waits, whichever library it gives."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from outbox.errors import OpenTransaction, UnsupportedConnection
from outbox.postgres.standing import in_pipeline

_ADVICE = (
    "give a connection of psycopg 3 or asyncpg, a session or connection of SQLAlchemy, "
    "or a connection of Django"
)
_ATOMIC = "wait after the block of `transaction.atomic()`, in autocommit mode"
_SESSION = "commit the session first, and wait after that"
_OUTER = "commit the connection that the session was made with, and wait after that"
_COMMIT_FIRST = "leave its block, or commit it, and wait after that"


@contextmanager
def driver(conn: object) -> Iterator[psycopg.Connection[Any]]:
    """
    Yield the connection of psycopg of a connection that is not awaited; nothing is open on it.

    Raises:
        OpenTransaction: a transaction is open on it.
        UnsupportedConnection: it is no such connection; the message says what to give.
    """
    given: Any = conn
    match _library(conn):
        case "psycopg" if isinstance(conn, psycopg.Connection):
            yield _free(conn)
        case "sqlalchemy" if not hasattr(conn, "run_sync"):
            with _of_sqlalchemy(given) as found:
                yield _free(found)
        case "django" if hasattr(conn, "in_atomic_block"):
            if given.in_atomic_block or not given.get_autocommit():
                raise _open_transaction(_ATOMIC)
            given.ensure_connection()
            yield _free(_psycopg(given.connection))
        case "psycopg" | "asyncpg" | "sqlalchemy" if _is_awaited(conn):
            msg = f"{_name(conn)} has to be awaited: `await …_async(conn, …)`"
            raise UnsupportedConnection(msg)
        case _:
            raise _unsupported(conn)


@asynccontextmanager
async def driver_async(conn: object) -> AsyncIterator[Any]:
    """As `driver`: a connection of psycopg that has to be awaited, or one of asyncpg."""
    given: Any = conn
    match _library(conn):
        case "psycopg" if isinstance(conn, psycopg.AsyncConnection):
            yield _free(conn)
        case "asyncpg" if hasattr(conn, "is_in_transaction"):
            yield _free_of_asyncpg(given)
        case "sqlalchemy" if _is_awaited(conn):
            async with _of_sqlalchemy_async(given) as found:
                if isinstance(found, psycopg.AsyncConnection):
                    yield _free(found)
                elif hasattr(found, "is_in_transaction"):
                    yield _free_of_asyncpg(found)
                else:
                    raise _unsupported(found)
        case "psycopg" | "sqlalchemy" | "django" if not _is_awaited(conn):
            msg = f"{_name(conn)} is not awaited: call the function without `_async`"
            raise UnsupportedConnection(msg)
        case _:
            raise _unsupported(conn)


@contextmanager
def _of_sqlalchemy(given: Any) -> Iterator[psycopg.Connection[Any]]:  # noqa: ANN401  # a session or a connection
    orm = import_module("sqlalchemy.orm")
    if isinstance(given, orm.scoped_session):
        given = given.registry()
    if given.in_transaction():
        raise _open_transaction(_SESSION)
    if not isinstance(given, orm.Session):
        yield _psycopg(given.connection.driver_connection)
        return
    # The session has given its connection back, so this takes one in its place.
    with _engine_of(given).connect() as conn:
        yield _psycopg(conn.connection.driver_connection)


@asynccontextmanager
async def _of_sqlalchemy_async(given: Any) -> AsyncIterator[Any]:  # noqa: ANN401  # as above
    aio = import_module("sqlalchemy.ext.asyncio")
    if isinstance(given, aio.async_scoped_session):
        given = given.registry()
    if given.in_transaction():
        raise _open_transaction(_SESSION)
    if isinstance(given, aio.AsyncConnection):
        yield (await given.get_raw_connection()).driver_connection
        return
    async with aio.AsyncEngine(_engine_of(given)).connect() as conn:
        yield (await conn.get_raw_connection()).driver_connection


def _engine_of(session: Any) -> Any:  # noqa: ANN401  # a session, and an engine that is not awaited
    """Return the engine of a session, whose own connection must not be in a transaction."""
    try:
        bind = session.get_bind()
    except import_module("sqlalchemy.exc").UnboundExecutionError as error:
        msg = f"the session has no engine of its own: {_ADVICE}"
        raise UnsupportedConnection(msg) from error
    if hasattr(bind, "in_transaction") and bind.in_transaction():
        # The session's own commit has only ended a savepoint of it, or nothing at all.
        raise _open_transaction(_OUTER)
    return getattr(bind, "engine", bind)


def _free(conn: Any) -> Any:  # noqa: ANN401  # a connection of psycopg, of either kind
    """Return the connection if nothing is going on in it."""
    if in_pipeline(conn):
        msg = "nobody can wait in a pipeline: leave its block first"
        raise UnsupportedConnection(msg)
    if conn.info.transaction_status in {
        TransactionStatus.INTRANS,
        TransactionStatus.INERROR,
        TransactionStatus.ACTIVE,
    }:
        raise _open_transaction(_COMMIT_FIRST)
    return conn


def _free_of_asyncpg(conn: Any) -> Any:  # noqa: ANN401  # asyncpg may not be installed
    if conn.is_in_transaction():
        raise _open_transaction(_COMMIT_FIRST)
    return conn


def _open_transaction(advice: str) -> OpenTransaction:
    return OpenTransaction(
        "a transaction is open on this connection: nobody else sees its events before it "
        f"commits; {advice}"
    )


def _psycopg(found: object) -> psycopg.Connection[Any]:
    if isinstance(found, psycopg.Connection):
        return found
    raise _unsupported(found)


def _library(conn: object) -> str:
    known = {"psycopg", "asyncpg", "sqlalchemy", "django"}
    roots = (base.__module__.partition(".")[0] for base in conn.__class__.__mro__)
    return next((root for root in roots if root in known), "")


def _is_awaited(conn: object) -> bool:
    if isinstance(conn, psycopg.AsyncConnection) or _library(conn) == "asyncpg":
        return True
    return any(base.__module__.startswith("sqlalchemy.ext.asyncio") for base in type(conn).__mro__)


def _name(conn: object) -> str:
    kind = conn.__class__
    return f"{kind.__module__}.{kind.__qualname__}"


def _unsupported(conn: object) -> UnsupportedConnection:
    return UnsupportedConnection(f"nobody can wait on {_name(conn)}; {_ADVICE}")
