"""The times at which Spark will call each bucket of a stateful job, as its driver knows them."""

from collections.abc import Mapping
from typing import TypeAlias

NONE = -1
"""Nothing is due in a bucket until a record comes."""
Alarms: TypeAlias = Mapping[str, int]
"""By bucket, in milliseconds, or `NONE`."""


class KnownAlarms:
    """Each step of a bucket reports its alarm; alarms from before the start are read."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self.is_complete = False

    def tell(self, alarms: Alarms) -> None:
        """Take in the alarms of buckets that have just been stepped."""
        self._told |= alarms

    def complete(self, stored: Alarms) -> None:
        """Take in the alarms that a finished batch has left; alarms since the start are newer."""
        self._told = {**stored, **self._told}
        self.is_complete = True

    def is_due(self, now: int) -> bool:
        """Return whether Spark would call a bucket at `now`, or might as far as is known."""
        if not self.is_complete:
            return True
        return any(alarm != NONE and alarm <= now for alarm in self._told.values())
