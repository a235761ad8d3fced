"""Record what is written in a real session of SQLAlchemy, whichever database it is of."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import event as listening
from sqlalchemy.orm import Session, SessionTransaction

from outbox.event import Event
from outbox.testing.recording import Recorded, Recording
from outbox.testing.rows import events_of
from outbox.writing.sqlalchemy import RECORDER
from outbox.writing.statements import Statement


class RecordedSession(Recorded):
    """The events of a session, which is the test's own."""

    def __init__(self, session: Session) -> None:
        self.recording = Recording(None)
        self._session = session
        self._open: WeakKeyDictionary[SessionTransaction, list[Event]] = WeakKeyDictionary()

    @property
    def events(self) -> list[Event]:
        """The events that were written and not rolled back, in order."""
        return [*self.committed, *self.open]

    @property
    def open(self) -> list[Event]:
        """The events of the open transaction and its savepoints, in order."""
        levels, each = [], self._innermost()
        while each is not None:
            levels.append(self._open.get(each, []))
            each = _outer(each)
        return [event for level in reversed(levels) for event in level]

    def record(self, statement: Statement) -> None:
        """Take the events of a statement that appends."""
        if self._innermost() is None:
            self._session.begin()
        level = self._innermost()
        assert level is not None  # noqa: S101  # a session has one once it has begun
        self._open.setdefault(level, []).extend(events_of(statement))

    def committed_one(self, _: Session) -> None:
        """Move the events of a transaction or savepoint outwards."""
        level = self._innermost()
        if level is not None and (events := self._open.pop(level, None)):
            outer = _outer(level)
            if outer is None:
                self.recording.journal.committed.extend(events)
            else:
                self._open.setdefault(outer, []).extend(events)

    def ended(self, _: Session, level: SessionTransaction) -> None:
        """Forget the events of a transaction that has ended without a commit."""
        self._open.pop(level, None)

    def _innermost(self) -> SessionTransaction | None:
        return self._session.get_nested_transaction() or self._session.get_transaction()


def _outer(level: SessionTransaction) -> SessionTransaction | None:
    """Return the next transaction or savepoint around one; a flush has levels of its own."""
    outer = level.parent
    while outer is not None and not outer.nested and outer.parent is not None:
        outer = outer.parent
    return outer


@contextmanager
def recorded_session(session: Any) -> Iterator[RecordedSession]:  # noqa: ANN401  # also an async one
    """Record what is written in a session, for as long as the block runs."""
    real: Session = getattr(session, "sync_session", session)
    recorder = RecordedSession(real)
    listeners: list[tuple[str, Callable[..., Any]]] = [
        ("after_commit", recorder.committed_one),
        ("after_transaction_end", recorder.ended),
    ]
    before = real.info.get(RECORDER)
    real.info[RECORDER] = recorder
    for name, listener in listeners:
        listening.listen(real, name, listener)
    try:
        yield recorder
    finally:
        for name, listener in listeners:
            listening.remove(real, name, listener)
        real.info[RECORDER] = before
