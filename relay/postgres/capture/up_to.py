"""Read events up to a given place, and no further."""

import threading
from collections.abc import Iterator
from dataclasses import replace

from relay.errors import LeaseLost
from relay.postgres.capture.switching import SwitchingCapture, with_log
from relay.postgres.capture.table import TableCapture
from relay.rules.batch import Batch, Leave
from relay.rules.places.progress import Cursor, LogPosition, Origin, Place, Progress


class UpTo:
    """A capture that ends: `reached` is set once everything up to `end` is durably published."""

    def __init__(self, table: TableCapture, end: Cursor, reached: threading.Event) -> None:
        self._table, self._end, self._reached = table, end, reached

    def origin(self) -> Origin:
        return self._table.origin()

    def resume(self, progress: Progress | None) -> Place:
        place = progress.cursor if progress else Cursor()
        if isinstance(place, Cursor):
            _require(self._end.since.covers(place.until or place.since), place, self._end)
        return place

    def batches(self, cursor: Place) -> Iterator[Batch]:
        if isinstance(cursor, Cursor) and cursor != self._end:
            for batch in self._table.up_to(self._end.since, cursor):
                yield with_log(batch, cursor.log)
        yield Batch([], self._end, 0, keep=True)

    def wait(self, seconds: float) -> None:
        self._table.wait(seconds)

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        del forget  # rows stay where they are
        if cursor == self._end:
            self._reached.set()

    def settle(self, leave: Leave) -> None:
        """There is no log to leave."""

    def stay(self) -> None:
        self._table.stay()

    def interrupt(self) -> None:
        self._table.interrupt()

    def close(self) -> None:
        self._table.close()


class LogUpTo:
    """The same for the log; the given capture leaves out what commits after `end`."""

    def __init__(self, log: SwitchingCapture, end: LogPosition, reached: threading.Event) -> None:
        self._log, self._end, self._reached = log, end, reached

    def origin(self) -> Origin:
        return self._log.origin()

    def resume(self, progress: Progress | None) -> Place:
        place = self._log.resume(progress)
        if isinstance(place, LogPosition):
            _require(place.lsn <= self._end.lsn, place, self._end)
        return place

    def batches(self, cursor: Place) -> Iterator[Batch]:
        if cursor == self._end:
            yield Batch([], self._end, 0, keep=True)
            return
        for batch in self._log.batches(cursor):
            place = batch.cursor
            if isinstance(place, LogPosition) and place.lsn >= self._end.lsn:
                # The table's events were committed, and are published, before the end.
                yield replace(batch, cursor=self._end, keep=True)
                return
            yield batch

    def wait(self, seconds: float) -> None:
        self._log.wait(seconds)

    def confirm(self, cursor: Place, forget: Place | None = None) -> None:
        self._log.confirm(cursor, forget)
        if cursor == self._end:
            self._reached.set()

    def settle(self, leave: Leave) -> None:
        self._log.settle(leave)

    def stay(self) -> None:
        self._log.stay()

    def interrupt(self) -> None:
        self._log.interrupt()

    def close(self) -> None:
        self._log.close()


def _require(is_before: bool, place: Place, end: Place) -> None:  # noqa: FBT001  # what is required
    """Check that nobody has published beyond `end`: going back there would repeat events."""
    if not is_before:
        msg = f"another relay has published up to {place}, beyond {end}"
        raise LeaseLost(msg)
