"""Read ahead in a thread: the next batch is there when the last one is confirmed."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import psycopg

from relay.capture.table import Batch, TableCapture
from relay.errors import Outage
from relay.postgres import first_line
from relay.progress import Cursor

# Batches read ahead; each is bounded in rows and bytes.
_AHEAD = 4
# An answer that takes longer is worth a word to the operator.
_PATIENCE = 2.0


class Reader:
    """
    Batches from a capture, in order, until closed.

    Polls adaptively: soon again while events flow, with doubling pauses while there are none.
    An empty batch says that everything before it was all there was. `slow` is told when Postgres
    takes its time.
    """

    def __init__(
        self,
        capture: TableCapture,
        cursor: Cursor,
        *,
        poll_min: float,
        poll_max: float,
        slow: Callable[[str], None],
    ) -> None:
        self._capture, self._cursor, self._slow = capture, cursor, slow
        self._poll_min, self._poll_max = poll_min, poll_max
        self._queue: queue.Queue[Batch | Exception] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop reading; what was read ahead is dropped, and is still in the table."""
        self._stop.set()
        while self._thread.is_alive():
            self._capture.interrupt()
            self._discard()
            self._thread.join(0.05)

    def batches(self, most_rows: int, most_bytes: int, stop: threading.Event) -> Iterator[Batch]:
        """Yield what was read since the last time as one batch, as far as the bounds allow."""
        held: Batch | None = None
        while not stop.is_set():
            batch, held = held or self._next(stop), None
            if batch is None:
                return
            rows, size = list(batch.rows), batch.size
            while len(rows) < most_rows and size < most_bytes:
                following = self._next_now()
                if following is None:
                    break
                if len(rows) + len(following.rows) > most_rows:
                    held = following
                    break
                rows += following.rows
                size += following.size
                batch = following
            yield Batch(rows, batch.cursor, size)

    def _next(self, stop: threading.Event) -> Batch | None:
        began = time.monotonic()
        while not stop.is_set():
            try:
                return self._unwrap(self._queue.get(timeout=0.1))
            except queue.Empty:
                # Even where there is nothing to publish, an empty batch comes with every poll.
                waited = time.monotonic() - began
                if waited > self._poll_max + _PATIENCE:
                    self._slow(f"Postgres: no answer for {waited:.0f} s")
        return None

    def _next_now(self) -> Batch | None:
        try:
            return self._unwrap(self._queue.get_nowait())
        except queue.Empty:
            return None

    @staticmethod
    def _unwrap(item: Batch | Exception) -> Batch:
        if isinstance(item, Exception):
            raise item
        return item

    def _discard(self) -> None:
        try:
            while True:
                self._queue.get_nowait()
        except queue.Empty:
            return

    def _run(self) -> None:
        try:
            self._read()
        except psycopg.OperationalError as error:
            self._put(Outage(f"Postgres: {first_line(error)}"))
        except Exception as error:  # noqa: BLE001  # raised again where the batches are awaited
            self._put(error)

    def _read(self) -> None:
        pause = self._poll_min
        while not self._stop.is_set():
            found = False
            for batch in self._capture.batches(self._cursor):
                self._cursor = batch.cursor
                found = found or bool(batch.rows)
                self._put(batch)
                if self._stop.is_set():
                    return
            pause = self._poll_min if found else min(pause * 2, self._poll_max)
            self._stop.wait(pause)

    def _put(self, item: Batch | Exception) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return
