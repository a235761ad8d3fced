"""Measure the recent rows per second."""

from collections import deque

_WINDOW_SECONDS = 60.0
_SHORTEST_SECONDS = 1.0


class Recent:
    """The rows of the last minute."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, int]] = deque()
        self._since: float | None = None

    def add(self, now: float, rows: int) -> None:
        """Count the rows of a batch that ended at `now`."""
        if self._since is None:
            self._since = now
        self._rows.append((now, rows))
        self._forget(now)

    def rate(self, now: float) -> float:
        """Return the rows per second in the last minute, or since the first batch."""
        self._forget(now)
        if self._since is None:
            return 0.0
        seconds = min(_WINDOW_SECONDS, max(_SHORTEST_SECONDS, now - self._since))
        return sum(rows for _, rows in list(self._rows)) / seconds

    def _forget(self, now: float) -> None:
        while self._rows and self._rows[0][0] < now - _WINDOW_SECONDS:
            self._rows.popleft()
