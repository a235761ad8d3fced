"""What every capture gives: batches of committed events, each with the place behind it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from relay.rules.places.progress import Newest, Origin, Place, Progress

Row: TypeAlias = tuple[Any, ...]
"""
position, id, time, topic, key, value, type, source, subject, content type, header names, values.

`position` is the position in the table, or what `log_number` makes of the place in the log.

`time` is in microseconds since 2000-01-01 UTC, as Postgres holds it: parsing 300,000 datetimes
would cost as much as publishing the events.
"""

FIRST_ROWS = 2_000
"""Of many events, so many come first: they are published while the others are read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in the order to publish them, and where the cursor stands once they are."""

    rows: Sequence[Row]
    cursor: Place
    size: int
    """Bytes of keys and values, or a little more."""
    keep: bool = False
    """Make the cursor durable even if there are no rows: the server waits for it."""
    lsn: str | None = None
    """The write-ahead log up to here holds the commits of all that a snapshot in `cursor` sees."""
    is_kept: Callable[[float], bool] | None = None
    """
    Waits so many seconds, and tells whether a crash of the server can no longer take it back.

    None: it cannot. The thread that reads finds out, when it has handed the batch over.
    """
    has_large: bool = False
    """Rows without a type are too large to be read, and stay where they are."""
    before: Place | None = None
    """Where the cursor stood in front of it, as its reader knows."""
    newest: Newest | None = None
    """What only a database has that has all up to `cursor`, if that is new."""


class Leave(Protocol):
    """Says in the session that has the active role that a shard has left the log."""

    def __call__(self, asked: str, *, number: int, of: int) -> bool:
        """Return whether that is still what the wish `asked` asks for."""


class Capture(Protocol):
    """The committed events of one outbox, from a place on. Its reader is one thread."""

    def origin(self) -> Origin:
        """Return which database this is, as progress remembers it."""

    def resume(self, progress: Progress | None) -> Place:
        """
        Return where to go on behind `progress`, or where an outbox without any begins.

        Raises:
            Refused: going on there would lose or repeat events.
        """

    def batches(self, cursor: Place) -> Iterator[Batch]:
        """
        Yield what is committed and lies behind `cursor`, in the order to publish it.

        Ends behind what was there when it was asked for, with an empty batch if that was nothing;
        the last cursor is where to come back to.
        """

    def wait(self, seconds: float) -> None:
        """Return when more may be there, after `seconds` at the latest."""

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        """
        Learn, from another thread, that everything up to `cursor` is durably published.

        The server may forget what lies before `forget`; all of it if that is not given.
        """

    def settle(self, leave: Leave) -> None:
        """Leave the log, if durable progress says that we are back in the table."""

    def stay(self) -> None:
        """Keep the server from giving us up while nobody takes the batches."""

    def interrupt(self) -> None:
        """End what the reading thread waits for, from another thread."""

    def close(self) -> None:
        """Give back the connections."""
