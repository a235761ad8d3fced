"""Read a table's events as far as a snapshot sees them, and no further."""

import threading
from collections.abc import Callable, Iterator

from relay.capture.batch import Batch
from relay.capture.switching import with_log
from relay.capture.table import TableCapture
from relay.progress import Cursor, Origin, Place, Progress


class UpTo:
    """A capture that ends: `reached` is set once everything up to `end` is durably published."""

    def __init__(self, table: TableCapture, end: Cursor, reached: threading.Event) -> None:
        self._table, self._end, self._reached = table, end, reached

    def origin(self) -> Origin:
        return self._table.origin()

    def resume(self, progress: Progress | None) -> Place:
        return progress.cursor if progress else Cursor()

    def batches(self, cursor: Place) -> Iterator[Batch]:
        if isinstance(cursor, Cursor) and cursor != self._end:
            for batch in self._table.up_to(self._end.since, cursor):
                yield with_log(batch, cursor.log)
        yield Batch([], self._end, 0, keep=True)

    def wait(self, seconds: float) -> None:
        self._table.wait(seconds)

    def confirm(self, cursor: Place) -> None:
        if cursor == self._end:
            self._reached.set()

    def settle(self, leave: Callable[[str], bool]) -> None:
        """There is no log to leave."""

    def stay(self) -> None:
        self._table.stay()

    def interrupt(self) -> None:
        self._table.interrupt()

    def close(self) -> None:
        self._table.close()
