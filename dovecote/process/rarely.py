"""Log an event that may happen to thousands of records at once, in a few lines a second."""

import logging
import threading
import time


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
