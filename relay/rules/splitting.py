"""Divide a batch that is too large: every row of it has a place after it."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from relay.rules.batch import Batch, Row
from relay.rules.places.lsn import log_place
from relay.rules.places.progress import Cursor, LogPosition, Place


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
    place = _behind(batch.rows[count - 1], batch.before, batch.cursor)
    if place is None:
        return None
    first, rest = batch.rows[:count], batch.rows[count:]
    left = sum(map(_bytes, rest))
    return (
        replace(batch, rows=first, cursor=place, size=max(0, batch.size - left), keep=False),
        replace(batch, rows=rest, size=min(batch.size, left), before=place),
    )


def _behind(row: Row, before: Place | None, after: Place) -> Place | None:
    match before, after:
        case Cursor(), Cursor():
            # A union with `since` sees the same of everything after it.
            until = before.until or after.until or after.since
            return Cursor(before.since, until, row[0], after.log)
        case LogPosition(), LogPosition():
            lsn, index = log_place(row[0])
            seen = before.seen if lsn < before.seen_to else None
            return LogPosition(lsn, index, seen, before.seen_to if seen else 0)
        case _:
            return None


def _fit(rows: Sequence[Row], size: int) -> int:
    """Return how many rows have no more than `size` bytes together."""
    for count, total in enumerate(accumulate(map(_bytes, rows))):
        if total > size:
            return count
    return len(rows)


def _bytes(row: Row) -> int:
    return len(row[4] or b"") + len(row[5] or b"")
