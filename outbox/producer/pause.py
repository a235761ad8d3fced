"""Wait longer after each failed attempt."""

import time


class Pause:
    """A moment before which not to try again: `longer` postpones it, `shorter` starts over."""

    def __init__(self, first: float, longest: float, factor: float = 2.0) -> None:
        """Begin with a moment that has come; the first pause takes `first` seconds."""
        self._first, self._longest, self._factor = first, longest, factor
        self._next, self._over_at = first, 0.0

    @property
    def left(self) -> float:
        """Seconds until that moment."""
        return max(0.0, self._over_at - time.monotonic())

    def longer(self) -> None:
        """Postpone the moment by more than last time."""
        self._over_at = time.monotonic() + self._next
        self._next = min(self._next * self._factor, self._longest)

    def shorter(self) -> None:
        """Postpone the moment by the first pause at most, now and next time."""
        self._over_at = min(self._over_at, time.monotonic() + self._first)
        self._next = self._first
