"""Hear of what a program does on a connection of a session, of which the session knows nothing."""

from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy import Connection
from sqlalchemy.engine import NestedTransaction
from sqlalchemy.event import listen
from sqlalchemy.orm import Session, SessionTransaction

from outbox.sqlalchemy.ledger import Savepoints

# A connection may outlive its session. A reference to the session would keep both alive.
_sessions: "WeakKeyDictionary[Connection, ref[Session]]" = WeakKeyDictionary()
_heard: "WeakSet[Connection]" = WeakSet()


def watch(
    session: Session,
    conn: Connection,
    *,
    undone: Callable[[Session, Connection, str], None],
    ending: Callable[[Session, Connection], None],
) -> None:
    """
    Call `undone` once a savepoint is rolled back on a connection, and `ending` before it commits.

    Both are called while the session is the last one for which its connection is watched.
    """
    _sessions[conn] = ref(session)
    if conn in _heard:
        return
    _heard.add(conn)

    def told(given: Connection, name: str, _context: object) -> None:
        if (found := _session_of(given)) is not None:
            undone(found, given, name)

    def asked(given: Connection, *_: object) -> None:
        if (found := _session_of(given)) is not None:
            ending(found, given)

    listen(conn, "rollback_savepoint", told)
    listen(conn, "commit", asked)
    listen(conn, "prepare_twophase", asked)


def savepoints(transaction: SessionTransaction | None) -> Savepoints:
    """Return the savepoints in which a session is, and which it has not made itself."""
    found: set[tuple[Connection, str]] = set()
    own: set[tuple[Connection, str]] = set()
    while transaction is not None:
        for conn, made, *_ in set(transaction._connections.values()):  # noqa: SLF001  # SQLAlchemy 2.0 has no other way
            if isinstance(made, NestedTransaction):
                own.add((conn, made._savepoint))  # noqa: SLF001  # as above
            each = conn.get_nested_transaction()
            while each is not None:
                found.add((conn, each._savepoint))  # noqa: SLF001  # as above
                each = each._previous_nested  # noqa: SLF001  # as above
        transaction = transaction.parent
    return frozenset(found - own)


def _session_of(conn: Connection) -> Session | None:
    found = _sessions.get(conn)
    return None if found is None else found()
