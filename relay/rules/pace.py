"""
Decide how large the next batch may be, so that the connection to the broker can take it in time.

A batch that was not confirmed in time would fail again at the same size. So a run begins small,
grows while batches are confirmed soon, and halves when they are not. It grows fast until the first
batch is late, and doubles after that.
"""

from dataclasses import dataclass

# A first batch is on its way within seconds even where the way takes 100 kB/s.
_FIRST_BYTES = 250_000
# A batch is soon if it takes less than this, in seconds, and less than the first part of the
# longest time that it may take. It is late if it takes more than the second part.
_SOON = 2.0
_PART_SOON, _PART_LATE = 1 / 8, 1 / 4
# A quota may let the first batch through at once and delay the next ones, so growth is careful.
_FAST, _CAREFUL = 8, 2


@dataclass(slots=True)
class Pace:
    """The most bytes that the next batch may have; a single larger event is a batch of its own."""

    full: int
    longest: float
    """The most seconds that a batch may take."""
    most: int = 0
    _growth: int = _FAST

    def __post_init__(self) -> None:
        self.most = min(self.full, _FIRST_BYTES)

    def confirmed(self, size: int, seconds: float) -> None:
        """Adapt to a batch of `size` bytes that took `seconds`."""
        if seconds > self.longest * _PART_LATE:
            self._growth = _CAREFUL
            self.most = max(1, min(self.most, size) // 2)
        # The speed of a smaller batch says nothing about a large one.
        elif 2 * size >= self.most and seconds < min(_SOON, self.longest * _PART_SOON):
            self.most = min(self.full, self._growth * self.most)

    def failed(self, size: int) -> None:
        """
        Adapt to a batch that failed or was not confirmed in time; the next one is small again.
        """
        self._growth = _CAREFUL
        self.most = max(1, min(_FIRST_BYTES, self.most, size // 2))
