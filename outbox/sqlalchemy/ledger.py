"""Note which events a session has recorded and written, and in which of its transactions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, TypeVar

from outbox.event import Event, Limits

T = TypeVar("T")


@dataclass(slots=True)
class Entry(Generic[T]):
    """One recorded event."""

    event: Event[Any]
    schema: str
    limits: Limits
    recorded: T
    """The transaction or savepoint in which it was recorded."""

    written: T | None = None
    """The one in which it was written; None: it is not written yet."""


@dataclass(slots=True)
class SessionLedger(Generic[T]):
    """The events of one session's transaction, in the order in which they were recorded."""

    entries: list[Entry[T]] = field(default_factory=list)
    closing: int = 0
    """How many commits have asked for what was recorded, and not ended yet."""

    flushing: bool = False
    """Whether a flush is under way that will write what is recorded."""

    def due(self) -> list[Entry[T]]:
        """Return the events that are to be written, in their order."""
        return [each for each in self.entries if each.written is None]

    def wrote(self, entries: Sequence[Entry[T]], within: T, *, root: bool) -> None:
        """Note that events were written; within the outermost transaction, nothing undoes that."""
        for each in entries:
            each.written = within
        if root:
            self.entries = self.due()

    def undo(self, savepoint: T) -> None:
        """
        Forget what was recorded in a savepoint that is rolled back.

        An event that was recorded before it, and written within it, is to be written again.
        """
        self.entries = [each for each in self.entries if each.recorded is not savepoint]
        for each in self.entries:
            if each.written is savepoint:
                each.written = None

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
