"""The events of transactions and their savepoints, as values."""

from collections.abc import Iterable

from outbox.event import Event


class Journal:
    """The events of one connection: those that were committed, and those of its open levels."""

    def __init__(self) -> None:
        self.committed: list[Event] = []
        """The events of all committed transactions, in order."""
        self._levels: list[list[Event]] = []

    @property
    def depth(self) -> int:
        """The number of open levels: 0 outside a transaction, 2 within a first savepoint."""
        return len(self._levels)

    @property
    def open(self) -> list[Event]:
        """The events of the open transaction and its savepoints, in order."""
        return [event for level in self._levels for event in level]

    def begin(self) -> None:
        """Begin a transaction, or a savepoint within it."""
        self._levels.append([])

    def add(self, events: Iterable[Event]) -> None:
        """Add events to the innermost level, which must be open."""
        self._levels[-1] += events

    def commit(self) -> None:
        """Commit the transaction, or release the innermost savepoint."""
        events = self._levels.pop()
        (self._levels[-1] if self._levels else self.committed).extend(events)

    def rollback(self) -> None:
        """Forget the innermost level."""
        self._levels.pop()

    def commit_all(self) -> None:
        """Commit the transaction with all its savepoints; without one, do nothing."""
        while self._levels:
            self.commit()

    def rollback_all(self) -> None:
        """Roll the transaction back with all its savepoints; without one, do nothing."""
        self._levels.clear()
