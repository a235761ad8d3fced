"""Hand batches from the thread that reads to the one that publishes, bounded in rows and bytes."""

import threading
from collections import deque
from dataclasses import replace

from relay.rules.batch import Batch


class Ahead:
    """
    Batches that were read and not yet taken, in order.

    Small batches may be many, so the bound is on their rows and bytes, not on their number. The
    reading thread waits for room before it reads, so it never holds a batch for which there is
    none.
    """

    def __init__(self, *, most_rows: int, most_bytes: int) -> None:
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._batches: deque[Batch] = deque()
        self._rows = self._bytes = 0
        self._error: Exception | None = None
        self._is_awaited = self._rests = False
        self._changed = threading.Condition()

    def put(self, batch: Batch) -> None:
        """Add a batch."""
        with self._changed:
            self._add(batch)
            self._changed.notify_all()

    def wait_for_room(self, wait: float) -> bool:
        """Wait up to `wait` seconds; return whether there is room for what may be read next."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._rows < self._most_rows and self._bytes < self._most_bytes, wait
            )

    def fail(self, error: Exception) -> None:
        """End with an error; `take` raises it after the batches that were read before."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def wait_until_awaited(self, wait: float) -> None:
        """Return when another thread waits for a batch, after `wait` seconds at the latest."""
        with self._changed:
            self._rests = True
            self._changed.wait_for(lambda: self._is_awaited, wait)
            self._rests = False

    def is_old(self) -> bool:
        """Return whether the batches here were all there was, and nobody has waited for them."""
        with self._changed:
            return self._rests and bool(self._batches)

    def take(self, wait: float) -> Batch | None:
        """Return the next batch, or None if there is none within `wait` seconds."""
        with self._changed:
            batch = self.take_if_any(wait)
            if batch is None and self._error is not None:
                raise self._error
            return batch

    def take_if_any(self, wait: float) -> Batch | None:
        """Like `take`, but leave an error for the next caller of `take`."""
        with self._changed:
            if wait and not self._batches:
                self._is_awaited = True
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._batches or self._error, wait)
            self._is_awaited = False
            if not self._batches:
                return None
            batch = self._batches.popleft()
            self._rows -= len(batch.rows)
            self._bytes -= batch.size
            self._changed.notify_all()
            return batch

    def clear(self) -> None:
        """Drop all batches."""
        with self._changed:
            self._batches.clear()
            self._rows = self._bytes = 0
            self._changed.notify_all()

    def _add(self, batch: Batch) -> None:
        last = self._batches[-1] if self._batches else None
        if last is not None and not last.rows and not batch.rows:
            # Consecutive polls that found nothing are merged: the last one stands for all.
            self._batches[-1] = replace(batch, keep=last.keep or batch.keep)
            return
        self._batches.append(batch)
        self._rows += len(batch.rows)
        self._bytes += batch.size
