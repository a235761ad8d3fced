"""
Decide how much the next batch may be, so that the way to the broker can take it in time.

What was not confirmed in time would not be the next time either, as large as before. So a run
begins small, grows as long as batches are confirmed soon, and halves when they are not. It grows
fast until a batch is late for the first time, and doubles after that.
"""

from dataclasses import dataclass

# A first batch is on its way within seconds even where the way takes 100 kB/s.
_FIRST_BYTES = 250_000
# Sooner than in so many seconds a batch is confirmed on a way that takes more. Of the longest that
# it may take, so much is soon, and so much late.
_SOON = 2.0
_PART_SOON, _PART_LATE = 1 / 8, 1 / 4
# A quota may let the first batch pass at once, and none of the next: growth is careful then.
_FAST, _CAREFUL = 8, 2


@dataclass(slots=True)
class Pace:
    """How many bytes the next batch may have, at most: a single event is one alone."""

    full: int
    longest: float
    """Seconds that a batch may take, at most."""
    most: int = 0
    _growth: int = _FAST

    def __post_init__(self) -> None:
        self.most = min(self.full, _FIRST_BYTES)

    def confirmed(self, size: int, seconds: float) -> None:
        """Learn that a batch of so many bytes took so long."""
        if seconds > self.longest * _PART_LATE:
            self._growth = _CAREFUL
            self.most = max(1, min(self.most, size) // 2)
        # A smaller one says nothing of what a large one would take.
        elif 2 * size >= self.most and seconds < min(_SOON, self.longest * _PART_SOON):
            self.most = min(self.full, self._growth * self.most)

    def failed(self, size: int) -> None:
        """Learn that a batch was not confirmed, or not in time; the next one is small again."""
        self._growth = _CAREFUL
        self.most = max(1, min(_FIRST_BYTES, self.most, size // 2))
