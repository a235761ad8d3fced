"""Decide when to poll again: not for each single record, because a turn costs more than it."""

_GATHER_SECONDS = 0.001
_FEW = 20
_IDLE_SECONDS, _RESTING_SECONDS = 0.1, 0.5
_RESTS_AFTER_SECONDS = 5.0


class Pace:
    """
    Lets records gather for a moment after a poll that found few, so that one turn takes several.

    The first record after a pause does not wait, and under load none does.

    A poll that finds nothing costs as much as dozens of records, and a process may have hundreds
    of consumers. So polls are rarer after some seconds without a record. A record ends the wait of
    a poll at once; an order to stop does not.
    """

    def __init__(self, batch_size: int, gather: float = _GATHER_SECONDS) -> None:
        self._gather = gather
        # A full batch is never few, however small it is: more records are waiting.
        self._few = min(_FEW, batch_size)
        self._next = 0.0
        self._came: float | None = None

    def found(self, messages: int, now: float) -> None:
        """Record how many messages a poll found."""
        if messages or self._came is None:
            self._came = now
        self._next = now + self._gather if 0 < messages < self._few else 0.0

    def early(self, now: float) -> float:
        """Return for how many seconds not to poll yet; 0 or less: poll."""
        return self._next - now

    def idle(self, now: float, *, is_stuck: bool = False) -> float:
        """
        Return for how many seconds a poll may wait for a record, if nothing else is to be done.

        `is_stuck`: something has to be tried again soon.
        """
        rests = self._came is not None and now - self._came > _RESTS_AFTER_SECONDS
        return _RESTING_SECONDS if rests and not is_stuck else _IDLE_SECONDS
