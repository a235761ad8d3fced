"""Count what became of the last minute's records."""

from collections import deque

from dovecote.process.states import MINUTE


class Recent:
    """Counts by the second, so that its size has a bound; the caller passes the time."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int, int]] = deque(maxlen=int(MINUTE) + 1)

    def add(self, now: float, handled: int, failed: int) -> None:
        """Add what became of records since the last call; call it about once a second."""
        if handled or failed:
            self._steps.append((now, handled, failed))

    def counts(self, now: float) -> tuple[int, int]:
        """Return how many records were handled or skipped, and how many attempts failed."""
        fresh = [each for each in tuple(self._steps) if now - each[0] < MINUTE]
        return sum(each[1] for each in fresh), sum(each[2] for each in fresh)
