"""Decide when to poll again: not for each single record, because a turn costs more than it."""

_GATHER_SECONDS = 0.001
_FEW = 20


class Pace:
    """
    Lets records gather for a moment after a poll that found few, so that one turn takes several.

    The first record after a pause does not wait, and under load none does.
    """

    def __init__(self, batch_size: int, gather: float = _GATHER_SECONDS) -> None:
        self._gather = gather
        # A full batch is never few, however small it is: more records are waiting.
        self._few = min(_FEW, batch_size)
        self._next = 0.0

    def found(self, messages: int, now: float) -> None:
        """Record how many messages a poll found."""
        self._next = now + self._gather if 0 < messages < self._few else 0.0

    def early(self, now: float) -> float:
        """Return for how many seconds not to poll yet; 0 or less: poll."""
        return self._next - now
