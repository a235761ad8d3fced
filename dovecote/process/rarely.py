"""Log an event that may happen to thousands of records at once, in a few lines a second."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable


class Rarely:
    """Lets `most` lines a second through, and counts the rest."""

    def __init__(self, log: logging.Logger, most: int = 10) -> None:
        self._log, self._most = log, most
        self._lock = threading.Lock()
        self._second = 0
        self._lines = self._kept = 0

    def warning(self, text: str, *values: object) -> None:
        """Log a line, or count it."""
        with self._lock:
            second, kept = int(time.monotonic()), 0
            if second != self._second:
                kept, self._second, self._lines, self._kept = self._kept, second, 0, 0
            self._lines += 1
            if self._lines > self._most:
                self._kept += 1
                return
        if kept:
            self._log.warning("… and %d more lines like those before", kept)
        self._log.warning(text, *values)


class Sums:
    """Counts records by what became of them, and logs the sums once in a while."""

    def __init__(self, log: logging.Logger, what: str, every: float = 10.0) -> None:
        self._log, self._what, self._every = log, what, every
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._first = ""
        self._due: float | None = None

    def add(self, kind: str, count: int, first: Callable[[], str]) -> None:
        """Count records of a kind; `first` returns words for one of them."""
        with self._lock:
            if self._due is None:
                self._due, self._first = time.monotonic() + self._every, first()
            self._counts[kind] += count

    def tell(self, *, at_once: bool = False) -> None:
        """Log the sums if that is due, or `at_once`."""
        with self._lock:
            if self._due is None or not (at_once or time.monotonic() >= self._due):
                return
            counts, first = self._counts, self._first
            self._counts, self._due = Counter(), None
        told = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        self._log.info("%d %s: %s; the first: %s", counts.total(), self._what, told, first)
