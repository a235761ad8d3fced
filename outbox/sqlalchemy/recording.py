"""Record events on a session, and write them when it flushes or commits."""

import sys
from copy import copy
from typing import Any, TypeAlias

from sqlalchemy import Connection
from sqlalchemy.event import listens_for
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from outbox import schema as _schema
from outbox.errors import NoTransaction, UnsupportedConnection
from outbox.event import Event, Limits
from outbox.sqlalchemy.ledger import Entry, Savepoints, SessionLedger, batches
from outbox.sqlalchemy.watched import savepoints, watch
from outbox.tracing import gate
from outbox.tracing.headers import with_trace
from outbox.writing import statements
from outbox.writing.append import Append
from outbox.writing.declared import to_event
from outbox.writing.kinds import (
    SQLAlchemyAsync,
    SQLAlchemyAsyncScoped,
    SQLAlchemySession,
)
from outbox.writing.sqlalchemy import (
    RECORDER,
    connection_for,
    require_known,
    write_flushed,
    write_now,
)

AnySession: TypeAlias = SQLAlchemySession | SQLAlchemyAsync | SQLAlchemyAsyncScoped

_DEFAULT_LIMITS = Limits()

# Kept in the session, because an entry refers to it: a dictionary of ours would keep both alive.
_INFO = "dovecote.recorded"


def record(
    session: AnySession,
    *events: Event[Any] | object,
    schema: str = _schema.DEFAULT_SCHEMA,
    limits: Limits = _DEFAULT_LIMITS,
) -> None:
    """
    Keep events on a session, which writes them in its own transaction.

    It writes them, in the order of these calls, after the rows of its next flush, and at the
    latest when it commits. They vanish with a rollback, also with that of the savepoint in which
    they were recorded. This executes nothing by itself and need not be awaited. As `session.add`
    does, it begins the session's transaction where none is open.

    `session` is a `Session`, `scoped_session`, `AsyncSession` or `async_scoped_session`. An event
    is what `write` takes. It is as it was when it was recorded: later changes of its value do not
    reach it.

    Raises:
        UnsupportedConnection: `session` is none of these, or its engine is of another driver;
            also a `TypeError`.
        NoTransaction: the session begins no transaction by itself, and has none; or its
            transaction has failed, is prepared, or is over.
        InvalidEvent: an event could never be published; none was recorded.
    """
    own = _session_of(session)
    require_known(own, schema)
    given = [_frozen(to_event(each)) for each in events]
    if not given:
        return
    statements.append(given, schema=schema, limits=limits)  # raises now, and not at the commit
    current = _boundary(own)
    if not current.is_active:
        msg = (
            "the session's transaction has failed, is prepared, or is over, and takes no more "
            "events: roll it back where it has failed, and record in the next one"
        )
        raise NoTransaction(msg)
    ledger, around = _ledger_of(own), _savepoints(own)
    entries = [Entry(each, schema, limits, current, around) for each in given]
    ledger.entries += entries
    if ledger.closing:
        try:
            _record_late(own, ledger, schema)
        except BaseException:
            ledger.withdraw(entries)
            raise


def _session_of(given: object) -> Session:
    found = given
    if isinstance(found, scoped_session):
        found = found.registry()
    # Its caller has imported the module of an async class, which needs greenlet.
    elif (module := sys.modules.get("sqlalchemy.ext.asyncio")) is not None:
        if isinstance(found, module.async_scoped_session):
            found = found.registry()
        if isinstance(found, module.AsyncSession):
            found = found.sync_session
    if isinstance(found, Session):
        return found
    msg = (
        f"record takes a session of SQLAlchemy, not {type(given).__name__}; "
        "on a connection call `write` or `await write_async`"
    )
    raise UnsupportedConnection(msg)


def _frozen(event: Event[Any]) -> Event[Any]:
    """Return the event with its value as Kafka will hold it, and with the current trace."""
    found = copy(event)
    object.__setattr__(found, "content_type", event.media_type())
    object.__setattr__(found, "value", event.value_bytes())
    if event.traceparent is None and (trace := gate.carried(event)):
        parent, headers = with_trace(event, trace)
        object.__setattr__(found, "headers", headers)
        object.__setattr__(found, "traceparent", parent)
    return found


def _record_late(session: Session, ledger: SessionLedger[SessionTransaction], schema: str) -> None:
    """Make sure that an event is written that a listener has recorded during a commit."""
    flushing = ledger.flushing and session._flushing  # noqa: SLF001  # SQLAlchemy has no other way to ask
    if not flushing or session.info.get(RECORDER) is not None:
        # Our own listener of the commit, or of this flush, has run: nothing else would write it.
        _write_rows_and(session, ledger)
        return
    # This flush writes it, unless listeners leave nothing to flush.
    if (conn := connection_for(session, schema, "events")) is not None:
        ledger.last = conn
        watch(session, conn, undone=_undone, ending=_ending)


def _ledger(session: Session) -> SessionLedger[SessionTransaction] | None:
    found: SessionLedger[SessionTransaction] | None = session.info.get(_INFO)
    return found


def _ledger_of(session: Session) -> SessionLedger[SessionTransaction]:
    root, found = session.get_transaction(), _ledger(session)
    if found is None or found.root is not root:
        found = session.info[_INFO] = SessionLedger(root)
    return found


def _savepoints(session: Session) -> Savepoints:
    """Return the savepoints of others in which a session is, and hear of them from now on."""
    found = savepoints(session.get_nested_transaction() or session.get_transaction())
    for conn in {each[0] for each in found}:
        watch(session, conn, undone=_undone, ending=_ending)
    return found


def _around(savepoint: SessionTransaction) -> SessionTransaction:
    """Return the savepoint or transaction in which a savepoint was made."""
    found = savepoint.parent
    while found is not None and not found.nested and found.parent is not None:
        found = found.parent
    return found or savepoint


def _boundary(session: Session) -> SessionTransaction:
    """Return the innermost savepoint, or the transaction."""
    found = session.get_nested_transaction() or session.get_transaction()
    if found is not None:
        return found
    if not session.autobegin:
        msg = "the session has no transaction, and begins none by itself; call session.begin()"
        raise NoTransaction(msg)
    return session.begin()


def _write_rows_and(session: Session, ledger: SessionLedger[SessionTransaction]) -> None:
    if not session._flushing:  # noqa: SLF001  # SQLAlchemy has no other way to ask
        # The flush locks the rows that changed, and they must be locked before an event gets its
        # position.
        session.flush()
    _write(session, ledger)


def _write(session: Session, ledger: SessionLedger[SessionTransaction]) -> None:
    for batch in batches(ledger.due()):
        first = batch[0]
        append = Append([each.event for each in batch], first.schema, first.limits)
        write_flushed(session, append)
        ledger.wrote(batch, _boundary(session), _savepoints(session))


def _undone(session: Session, conn: Connection, savepoint: str) -> None:
    """Forget what was recorded in a savepoint, and write again what was written there alone."""
    if (ledger := _ledger(session)) is not None:
        ledger.undo_in((conn, savepoint))


def _ending(session: Session, conn: Connection) -> None:
    """Write what a commit has left, where the session itself executes nothing any more."""
    ledger = _ledger(session)
    if ledger is None or ledger.last is not conn:
        return
    for batch in batches(ledger.due()):
        first = batch[0]
        write_now(conn, Append([each.event for each in batch], first.schema, first.limits))
        ledger.wrote(batch, ledger.root)


@listens_for(Session, "before_flush")
def _flush_begins(session: Session, *_: object) -> None:
    if (ledger := _ledger(session)) is not None:
        ledger.flushing = True


# Not `after_flush`: listeners of the application that come after ours may record there.
@listens_for(Session, "after_flush_postexec")
def _flushed(session: Session, _context: object) -> None:
    if (ledger := _ledger(session)) is not None:
        _write(session, ledger)
        ledger.flushing = False


@listens_for(Session, "before_commit")
def _committing(session: Session) -> None:
    # It comes for a savepoint, too, before that is released.
    ledger = _ledger_of(session)
    ledger.closing += 1
    if ledger.due():
        _write_rows_and(session, ledger)


@listens_for(Session, "after_commit")
def _committed(session: Session) -> None:
    ledger, savepoint = _ledger(session), session.get_nested_transaction()
    if ledger is None:
        return
    if savepoint is not None:
        ledger.release(savepoint, _around(savepoint))
    elif ledger.last is not None and ledger.last.in_transaction():
        # The transaction is that of a connection which somebody else commits.
        _ending(session, ledger.last)


@listens_for(Session, "after_soft_rollback")
def _rolled_back(session: Session, transaction: SessionTransaction) -> None:
    if (ledger := _ledger(session)) is not None and transaction.nested:
        ledger.undo(transaction)


@listens_for(Session, "after_transaction_end")
def _ended(session: Session, transaction: SessionTransaction) -> None:
    if (ledger := _ledger(session)) is None:
        return
    ledger.flushing = False  # a flush has a transaction of its own within this one
    if transaction.parent is None:
        # A listener that ran before this one may have recorded in the next transaction already.
        if ledger.root is transaction:
            del session.info[_INFO]
    elif transaction.nested:
        ledger.undo(transaction)  # nothing is left of one that was released
        ledger.ended()
