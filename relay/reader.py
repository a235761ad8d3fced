"""Read ahead in a thread, so that the next batch is there when the last one is confirmed."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Self, TypeAlias

import psycopg

from dovecote.process.memory import Arenas
from outbox.errors import first_line
from outbox.postgres.away import is_outage
from relay.errors import Outage
from relay.rules.batch import Batch, Capture, split
from relay.rules.places.progress import Place
from relay.rules.row import ID


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
        """Drop all batches, and let the reading thread go on: nobody takes any more."""
        with self._changed:
            self._is_awaited = True
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


Most: TypeAlias = Callable[[], tuple[int, int]]
"""Returns how many rows and bytes the next batch may have."""

# An answer that takes longer is reported to the operator.
_PATIENCE = 2.0

# On busy processors, asking for what has come takes this many seconds.
_SOON = 0.005

# A read of this many rows takes long enough to be worth reading ahead, if the answer takes longer
# than a pause. The log, which Postgres sends by itself, is here at once.
_MANY = 100
# One row in this many is checked for the memory that holds it; a MiB holds more rows than this.
_APART = 100


class Reader:
    """
    Batches from a capture, in order, until closed.

    Polls adaptively: soon again while events flow, with doubling pauses while there are none. An
    empty batch means that the batches before it were all there was. `slow` gets the reason when
    Postgres takes its time.
    """

    def __init__(
        self,
        capture: Capture,
        cursor: Place,
        *,
        ahead: Ahead,
        poll_min: float,
        poll_max: float,
        slow: Callable[[str], None],
    ) -> None:
        self._capture, self._cursor, self._slow = capture, cursor, slow
        self._poll_min, self._poll_max = poll_min, poll_max
        self._ahead = ahead
        self._held: Batch | None = None
        """A batch that was taken but did not fit into the one before it."""
        self._room = self._room_bytes = 0
        self._took = 0.0
        """Seconds from the last question to Postgres to its first answer."""
        self._arenas = Arenas()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop reading; the events read ahead are dropped, and are still in Postgres."""
        self._stop.set()
        while self._thread.is_alive():
            self._capture.interrupt()
            self._ahead.clear()
            self._thread.join(0.05)

    def batches(self, most: Most, stop: threading.Event) -> Iterator[Batch]:
        """
        Yield what was read since the last time as one batch, as far as the bounds allow.

        Events read while the last batch was published are not all: later ones would wait for
        another transaction. So the reader first asks for them, too.
        """
        while not stop.is_set():
            is_old = self._held is None and self._ahead.is_old()
            batch, self._held = self._held or self._next(stop), None
            if batch is None:
                return
            most_rows, most_bytes = most()
            if (parts := split(batch, rows=most_rows, size=most_bytes)) is not None:
                batch, self._held = parts
            rows, size, keep = list(batch.rows), batch.size, batch.keep
            is_kept, has_large, newest = batch.is_kept, batch.has_large, batch.newest
            while self._held is None and len(rows) < most_rows and size < most_bytes:
                # An error is left to the next call, after the events that are here.
                following = self._ahead.take_if_any(0)
                if following is None and is_old and rows:
                    following, is_old = self._ahead.take_if_any(_SOON), False
                if following is None:
                    break
                if (
                    len(rows) + len(following.rows) > most_rows
                    or size + following.size > most_bytes
                ) and rows:
                    self._held = following
                    break
                rows += following.rows
                size += following.size
                keep, newest = keep or following.keep, following.newest or newest
                # The reader reads no batch before it knows that the one before it is kept.
                is_kept = following.is_kept or is_kept
                has_large = has_large or following.has_large
                batch = following
            self._room, self._room_bytes = most_rows - len(rows), most_bytes - size
            yield replace(
                batch,
                rows=rows,
                size=size,
                keep=keep,
                is_kept=is_kept,
                has_large=has_large,
                newest=newest,
            )

    def more(self, seconds: float) -> Batch | None:
        """
        Return what has come since the batch that `batches` has just yielded, if there is room.

        It is read as late as possible: in time for `seconds`, if reading takes as long as last
        time. The wait is at most three times as long.
        """
        if self._held is not None or self._room <= 0 or self._room_bytes <= 0:
            return None
        time.sleep(max(0.0, seconds - self._took))
        following = self._ahead.take_if_any(2 * seconds)
        if following is not None and (
            len(following.rows) > self._room or following.size > self._room_bytes
        ):
            self._held, following = following, None
        return following

    def _next(self, stop: threading.Event) -> Batch | None:
        began = time.monotonic()
        while not stop.is_set():
            if (batch := self._ahead.take(0.1)) is not None:
                return batch
            # Even if there is nothing to publish, every poll gives an empty batch.
            waited = time.monotonic() - began
            if waited > self._poll_max + _PATIENCE:
                self._slow(f"Postgres: no answer for {waited:.0f} s")
        return None

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001  # raised again where the batches are awaited
            gone = isinstance(error, psycopg.Error) and is_outage(error)
            self._ahead.fail(Outage(f"Postgres: {first_line(error)}") if gone else error)

    def _read(self) -> None:
        pause = self._poll_min
        while not self._stop.is_set():
            asked, took, found = time.monotonic(), 0.0, 0
            for batch in self._capture.batches(self._cursor):
                took = took or time.monotonic() - asked
                before, self._cursor = self._cursor, batch.cursor
                found += len(batch.rows)
                self._put(replace(batch, before=before))
                if self._stop.is_set():
                    return
            self._took = took
            pause = self._poll_min if found else min(pause * 2, self._poll_max)
            if not self._stop.is_set():
                self._capture.wait(max(0.0, asked + pause - time.monotonic()))
                # Everything there was has been read. Events that come while the last of it is
                # published are best read when that is done: reading them earlier would only cost
                # the servers work. But reading many of them only then would delay the next batch.
                if found < _MANY or took < self._poll_min:
                    self._ahead.wait_until_awaited(self._poll_max)

    def _put(self, batch: Batch) -> None:
        if len(batch.rows) >= _MANY:
            self._arenas.keep(row[ID] for row in batch.rows[::_APART])
        self._ahead.put(batch)
        while not self._stop.is_set() and not self._ahead.wait_for_room(0.1):
            self._capture.stay()
