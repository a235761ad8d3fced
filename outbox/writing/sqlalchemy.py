"""Write on SQLAlchemy's sessions and connections, sync and async."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Dialect, MetaData, Table, Update, update
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.util import await_only

from outbox.errors import NoTransaction, UnsupportedConnection
from outbox.postgres.ours import accept, tuples
from outbox.postgres.standing import hear, hear_async, in_pipeline, is_open
from outbox.writing.append import Append, autocommit
from outbox.writing.find import Way
from outbox.writing.statements import Statement

ADVICE = "give a connection or a session of it, such as `with engine.begin() as conn:`"

_NAME_ONE = (
    "give the connection of your rows: "
    'session.connection(bind_arguments={"mapper": Order, "clause": update(Order)})'
)
_LEVEL = "take a connection or session of another isolation level than AUTOCOMMIT"
_AT_ONCE: Mapping[str, Any] = {"stream_results": False, "yield_per": None}
_DRIVERS = frozenset({"psycopg", "asyncpg"})

RECORDER = "dovecote.recorder"
"""The name in `Session.info` under which `outbox.testing.recorded` takes what is written."""

# Transactions of sessions in which we have written.
_of_one: WeakSet[SessionTransaction] = WeakSet()


def way(kind: type) -> Way | None:
    """Return how events are written on sessions or connections of this class."""
    ways = dict(_SYNC)
    # Its caller has imported the module of an async class.
    if (module := sys.modules.get("sqlalchemy.ext.asyncio")) is not None:
        ways |= {getattr(module, name): found for name, found in _ASYNC.items()}
    return next((found for base, found in ways.items() if issubclass(kind, base)), None)


def _on_connection(conn: Connection, append: Append) -> None:
    _require_transaction(conn)
    if append.events:
        _execute(conn, append, append.statement())


def write_now(conn: Connection, append: Append) -> None:
    """Write on a connection, whatever the session does that has it."""
    _on_connection(conn, append)


def write_flushed(session: Session, append: Append) -> None:
    """Write on a session that has flushed the rows before it, or is just doing so."""
    if (recorder := session.info.get(RECORDER)) is not None:
        recorder.record(append.statement())
        return
    conn = _connection_of(session, append.schema, "events")
    _require_transaction(conn)
    _require_one(session)
    _execute(conn, append, append.statement())


def require_known(session: Session, schema: str) -> None:
    """
    Check without a connection that events can be written through the engine of a session.

    Raises:
        UnsupportedConnection: it has no engine for the table of events, or one of another driver.
    """
    if session.info.get(RECORDER) is not None:
        return
    try:
        bind = session.get_bind(clause=_writing(schema, "events"))
    except UnboundExecutionError as error:
        raise _unbound() from error
    _require_driver(bind.dialect)


def _on_session(session: Session, append: Append) -> None:
    if not append.events:
        return
    # Build the statement before the flush, so that a bad event leaves nothing written.
    statement = append.statement()
    if (recorder := session.info.get(RECORDER)) is not None:
        if session.autoflush:
            session.flush()
        recorder.record(statement)
        return
    conn = _connection_of(session, append.schema, "events")
    _require_transaction(conn)
    if session.autoflush:
        # The flush locks the rows that changed, and they must be locked before an event gets its
        # position.
        session.flush()
    _require_one(session)
    _execute(conn, append, statement)


def connection_for(tx: object, schema: str, name: str) -> Connection | None:
    """
    Return the connection on which `tx` writes to a table, if it is a session or connection.

    Raises:
        NoTransaction: a session of several connections, which commit one by one.
        UnsupportedConnection: a session that has no connection for other tables than its own.
    """
    if isinstance(tx, scoped_session):
        tx = tx.registry()  # not `tx()`: a proxy of it need not be callable
    if isinstance(tx, Session):
        conn = _connection_of(tx, schema, name)
        _require_one(tx)
        return conn
    return tx if isinstance(tx, Connection) else None


def _connection_of(session: Session, schema: str, name: str) -> Connection:
    try:
        return session.connection(bind_arguments={"clause": _writing(schema, name)})
    except UnboundExecutionError as error:
        raise _unbound() from error


def _unbound() -> UnsupportedConnection:
    msg = f"the session has no engine for other tables than its own; {_NAME_ONE}"
    return UnsupportedConnection(msg)


@lru_cache(maxsize=64)
def _writing(schema: str, name: str) -> Update:
    # A session may route what writes to a leader. It may know writing by an update or a delete
    # alone, as in SQLAlchemy's documentation, since inserts are part of a flush.
    return update(Table(name, MetaData(), schema=schema))


def _require_one(session: Session) -> None:
    """Check that the session's transaction has one connection, now and until it ends."""
    transaction = session.get_transaction()
    # In two phases, all connections commit or none does.
    if transaction is not None and not session.twophase:
        _refuse_several(transaction)
        _of_one.add(transaction)


def _refuse_several(transaction: SessionTransaction) -> None:
    connections = {held[0] for held in transaction._connections.values()}  # noqa: SLF001  # SQLAlchemy 2.0 has no other way
    if len(connections) > 1:
        places = sorted(
            f"{conn.engine.url.host}/{conn.engine.url.database}" for conn in connections
        )
        msg = (
            f"the session's transaction has {len(places)} connections ({', '.join(places)}), "
            f"which commit one by one; use another session for what is elsewhere, or {_NAME_ONE}"
        )
        raise NoTransaction(msg)


@listens_for(Session, "after_begin")
def _begun(session: Session, _transaction: SessionTransaction, _conn: Connection) -> None:
    # The rows of an event may be flushed after it, perhaps only by the commit.
    root = session.get_transaction()
    if root is not None and root in _of_one:
        _refuse_several(root)


def _require_transaction(conn: Connection) -> None:
    _require_driver(conn.dialect)
    if not is_tied(conn):
        raise autocommit(_LEVEL)


def _require_driver(dialect: Dialect) -> None:
    if dialect.name != "postgresql" or dialect.driver not in _DRIVERS:
        msg = (
            f"events cannot be written through {dialect.name}+{dialect.driver}; make the engine "
            "with postgresql+psycopg or postgresql+asyncpg"
        )
        raise UnsupportedConnection(msg)


def is_tied(conn: Connection) -> bool:
    """Return whether a statement is in a transaction that the caller ends."""
    # Ask the driver: the level may come from the engine, the connection or the session.
    pooled = conn.connection
    driver: Any = pooled.driver_connection
    if conn.dialect.driver == "asyncpg":
        commits = getattr(pooled.dbapi_connection, "autocommit", False)
        return not commits or bool(driver.is_in_transaction())
    if in_pipeline(driver):
        if conn.dialect.is_async:
            await_only(hear_async(driver))
        else:
            hear(driver)
    return is_open(driver)


def _execute(conn: Connection, append: Append, statement: Statement) -> None:
    try:
        if conn.dialect.driver == "asyncpg":
            run(conn, statement.numbered(), statement.texts())
        else:
            run_on_psycopg(conn, statement.query.decode(), statement.ours())
    except DBAPIError as error:
        url = conn.engine.url
        if explained := append.explained(error.orig, database=url.database, role=url.username):
            raise explained from error
        raise


def run_on_psycopg(conn: Connection, query: str, params: Sequence[object]) -> str | None:
    """As `run`, whatever the application has configured on psycopg's connection."""
    driver: Any = conn.connection.driver_connection
    accept(driver)
    with tuples(driver):
        return run(conn, query, params)


def run(conn: Connection, query: str, params: Sequence[object]) -> str | None:
    """Execute a query and return its first value; this ends the result, not the transaction."""
    # Go through SQLAlchemy, which begins its transaction here and lets its listeners see the
    # statement. A cursor on the server's side would not execute it before somebody fetches.
    result = conn.exec_driver_sql(query, tuple(params), execution_options=_AT_ONCE)
    return result.scalar() if result.returns_rows else None


_SYNC = {
    Session: Way(_on_session, awaits=False),
    Connection: Way(_on_connection, awaits=False),
    scoped_session: Way(
        lambda registry, append: _on_session(registry.registry(), append), awaits=False
    ),
}
# By name, because their module cannot be imported without greenlet. They run the sync code, as
# everything in SQLAlchemy does.
_ASYNC = {
    "AsyncSession": Way(
        lambda session, append: session.run_sync(_on_session, append), awaits=True
    ),
    "AsyncConnection": Way(
        lambda conn, append: conn.run_sync(_on_connection, append), awaits=True
    ),
    "async_scoped_session": Way(
        lambda registry, append: registry.registry().run_sync(_on_session, append), awaits=True
    ),
}
