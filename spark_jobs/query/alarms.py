"""When Spark will call which bucket of a stateful job, as far as its driver was told."""

from collections.abc import Mapping
from typing import TypeAlias

NONE = -1
"""Nothing is due in a bucket until a record comes."""
Alarms: TypeAlias = Mapping[str, int]
"""In milliseconds, or `NONE`, by bucket."""


class KnownAlarms:
    """Each bucket tells its alarm whenever it is stepped; those before the start are read."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self.is_complete = False

    def tell(self, alarms: Alarms) -> None:
        """Take in what buckets say that have just been stepped."""
        self._told |= alarms

    def complete(self, stored: Alarms) -> None:
        """Take in what a finished batch has left; what was told since the start is newer."""
        self._told = {**stored, **self._told}
        self.is_complete = True

    def is_due(self, now: int) -> bool:
        """Return whether Spark would call a bucket at `now`, or may for all that is known."""
        if not self.is_complete:
            return True
        return any(alarm != NONE and alarm <= now for alarm in self._told.values())
