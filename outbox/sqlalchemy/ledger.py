"""Note which events a session has recorded and written, and in which of its transactions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar

from sqlalchemy import Connection

from outbox.event import Event, Limits

T = TypeVar("T")

Savepoints: TypeAlias = frozenset[tuple[Connection, str]]
"""Savepoints that the session has not made itself: each connection, and the savepoint's name."""


@dataclass(slots=True)
class Entry(Generic[T]):
    """One recorded event."""

    event: Event[Any]
    schema: str
    limits: Limits
    recorded: T
    """The transaction or savepoint in which it was recorded."""

    recorded_in: Savepoints = frozenset()
    written: T | None = None
    """The one in which it was written; None: it is not written yet."""

    written_in: Savepoints = frozenset()


@dataclass(slots=True)
class SessionLedger(Generic[T]):
    """The events of one session's transaction, in the order in which they were recorded."""

    root: T
    """The transaction itself."""

    entries: list[Entry[T]] = field(default_factory=list)
    closing: int = 0
    """How many commits have asked for what was recorded, and not ended yet."""

    flushing: bool = False
    """Whether a flush has begun that is to write what is recorded, and has not written it yet."""

    last: Connection | None = None
    """The connection that writes before it commits what no flush of the commit has written."""

    def due(self) -> list[Entry[T]]:
        """Return the events that are to be written, in their order."""
        return [each for each in self.entries if each.written is None]

    def wrote(
        self, entries: Sequence[Entry[T]], within: T, savepoints: Savepoints = frozenset()
    ) -> None:
        """Note that events were written; outside all savepoints, nothing undoes that alone."""
        for each in entries:
            each.written, each.written_in = within, savepoints
        if within is self.root and not savepoints:
            self.entries = self.due()

    def withdraw(self, entries: Sequence[Entry[T]]) -> None:
        """Forget events whose caller is told that they are not recorded."""
        refused = {id(each) for each in entries if each.written is None}
        self.entries = [each for each in self.entries if id(each) not in refused]

    def undo(self, savepoint: T) -> None:
        """
        Forget what was recorded in a savepoint that is rolled back.

        An event that was recorded before it, and written within it, is to be written again.
        """
        self.entries = [each for each in self.entries if each.recorded is not savepoint]
        for each in self.entries:
            if each.written is savepoint:
                each.written = None

    def undo_in(self, savepoint: tuple[Connection, str]) -> None:
        """As `undo`, of a savepoint that the session has not made itself."""
        self.entries = [each for each in self.entries if savepoint not in each.recorded_in]
        for each in self.entries:
            if savepoint in each.written_in:
                each.written, each.written_in = None, frozenset()

    def release(self, savepoint: T, parent: T) -> None:
        """Make what a savepoint has a part of the transaction around it."""
        for each in self.entries:
            if each.recorded is savepoint:
                each.recorded = parent
            if each.written is savepoint:
                each.written = parent

    def ended(self) -> None:
        """Note that the savepoint or transaction of a commit has ended."""
        self.closing = max(0, self.closing - 1)


def batches(entries: Sequence[Entry[T]]) -> list[list[Entry[T]]]:
    """Return runs of events that one statement can write, in their order."""
    alike = groupby(entries, key=lambda each: (each.schema, each.limits))
    return [list(run) for _, run in alike]
