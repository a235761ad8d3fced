"""Keep the events that were written on a recorded connection, and its statements."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from outbox.event import Event
from outbox.testing.journal import Journal
from outbox.testing.rows import events_of
from outbox.writing.statements import Statement

Answers: TypeAlias = Callable[[str, Any], Iterable[Any]]
"""Returns the rows with which a query is answered, given its text and its parameters."""


class Recording:
    """The events and the other statements of one connection, in order."""

    def __init__(self, answers: Answers | None) -> None:
        self.journal = Journal()
        self.statements: list[tuple[str, Any]] = []
        """The statements of the test's code, each with its parameters; `write` has none here."""
        self._answers = answers

    def record(self, statement: Statement) -> None:
        """Take the events of a statement that appends."""
        if not self.journal.depth:
            self.journal.begin()
        self.journal.add(events_of(statement))

    def ask(self, query: object, params: Any) -> list[Any]:  # noqa: ANN401  # any driver's
        """Note a statement, and return the rows of its answer."""
        text = text_of(query)
        self.statements.append((text, params))
        return [] if self._answers is None else list(self._answers(text, params))


class Recorded:
    """A recorded connection, as a test asks it."""

    recording: Recording

    @property
    def events(self) -> list[Event]:
        """The events that were written and not rolled back, in order."""
        return [*self.committed, *self.recording.journal.open]

    @property
    def committed(self) -> list[Event]:
        """The events of committed transactions, in order."""
        return list(self.recording.journal.committed)

    @property
    def statements(self) -> Sequence[tuple[str, Any]]:
        """The statements of your code and their parameters, in order."""
        return self.recording.statements


def text_of(query: object) -> str:
    """Return the text of a query, which may be an object of the driver's or of SQLAlchemy."""
    if isinstance(query, bytes):
        return query.decode()
    as_string = getattr(query, "as_string", None)
    return str(as_string(None) if callable(as_string) else query)
