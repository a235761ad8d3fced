"""The interface of every capture: batches of committed events, each with the place after it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

from relay.rules.places.lsn import log_place
from relay.rules.places.progress import Cursor, LogPosition, Newest, Origin, Place, Progress
from relay.rules.row import POSITION, Row, size_of

FIRST_ROWS = 2_000
"""The size of the first batch of a backlog: it is published while the others are read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in the order to publish them, and the cursor's place once they are published."""

    rows: Sequence[Row]
    cursor: Place
    size: int
    """Bytes of the events by `size_of`, or a little more."""
    keep: bool = False
    """Make the cursor durable even if there are no rows: the server waits for it."""
    lsn: str | None = None
    """The write-ahead log up to here holds every commit that a snapshot in `cursor` sees."""
    is_kept: Callable[[float], bool] | None = None
    """
    Waits up to the given seconds, and returns whether the batch would survive a crash of the
    server.

    None: it would. The reading thread finds out after it has handed the batch over.
    """
    has_large: bool = False
    """Rows without a type are too large to be read, and stay in the table."""
    before: Place | None = None
    """Where the cursor stood before this batch, as its reader knows."""
    newest: Newest | None = None
    """
    The newest transaction up to `cursor`, if it is new: only a database that has all up to there
    has it.
    """


class Leave(Protocol):
    """Records, in the session that holds the active role, that a shard has left the log."""

    def __call__(self, asked: str, *, number: int, of: int) -> bool:
        """Return whether the wish `asked` still asks for that."""


class Capture(Protocol):
    """The committed events of one outbox, from a place on. One thread reads it."""

    def origin(self) -> Origin:
        """Return which database this is, in the form that progress remembers."""

    def resume(self, progress: Progress | None) -> Place:
        """
        Return where to go on after `progress`, or where an outbox without progress begins.

        Raises:
            Refused: going on there would lose or repeat events.
        """

    def batches(self, cursor: Place) -> Iterator[Batch]:
        """
        Yield what is committed and lies after `cursor`, in the order to publish it.

        Ends with what was there at the call, with an empty batch if that was nothing. The last
        cursor is where to come back to.
        """

    def wait(self, seconds: float) -> None:
        """Return when there may be more, after `seconds` at the latest."""

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        """
        Note, from another thread, that everything up to `cursor` is durably published.

        The server may forget what lies before `forget`; without it, everything up to `cursor`.
        """

    def settle(self, leave: Leave) -> None:
        """Leave the log if durable progress shows that we are back in the table."""

    def stay(self) -> None:
        """Keep the server from dropping our connection while nobody takes the batches."""

    def interrupt(self) -> None:
        """End whatever the reading thread waits for, from another thread."""

    def close(self) -> None:
        """Close the connections."""


def split(batch: Batch, *, rows: int, size: int) -> tuple[Batch, Batch] | None:
    """
    Return the first part of `batch`, and the rest of it.

    The first part has at most `rows` rows and `size` bytes, but at least one row. None: there is
    nothing to divide, or the batch goes from the table into the log, so that its rows have no
    places.
    """
    if len(batch.rows) <= rows and batch.size <= size:
        return None
    count = max(1, min(rows, _fit(batch.rows, size)))
    if count >= len(batch.rows):
        return None
    place = _after(batch.rows[count - 1], batch.before, batch.cursor)
    if place is None:
        return None
    first, rest = batch.rows[:count], batch.rows[count:]
    left = sum(map(size_of, rest))
    return (
        replace(batch, rows=first, cursor=place, size=max(0, batch.size - left), keep=False),
        replace(batch, rows=rest, size=min(batch.size, left), before=place),
    )


def _after(row: Row, before: Place | None, end: Place) -> Place | None:
    match before, end:
        case Cursor(), Cursor():
            # A union with `since` sees the same of everything after it.
            until = before.until or end.until or end.since
            return Cursor(before.since, until, row[POSITION], end.log)
        case LogPosition(), LogPosition():
            lsn, index = log_place(row[POSITION])
            seen = before.seen if lsn < before.seen_to else None
            return LogPosition(lsn, index, seen, before.seen_to if seen else 0)
        case _:
            return None


def _fit(rows: Sequence[Row], size: int) -> int:
    """Return how many rows have no more than `size` bytes together."""
    for count, total in enumerate(accumulate(map(size_of, rows))):
        if total > size:
            return count
    return len(rows)
