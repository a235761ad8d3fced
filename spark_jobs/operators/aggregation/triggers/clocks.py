"""
The times at which a daily trigger fires: the same time of day, whatever its zone's clocks do.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from spark_jobs.operators.aggregation.triggers.time_patterns import TimePattern
from spark_jobs.operators.aggregation.triggers.zones import zone

__all__ = ["Daily", "zone"]

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Daily:
    """A time of day somewhere."""

    at: time
    zone: tzinfo

    @classmethod
    def parse(cls, text: str, pattern: TimePattern, zone_name: str) -> "Daily":
        """
        Return the time of day in `text`; `zone_name` applies if the pattern has no offset.

        Raises:
            ValueError: `text` does not match the pattern.
        """
        found = pattern.parse(text)
        return cls(found.time, found.zone or zone(zone_name))

    def after(self, moment: int) -> int:
        """
        Return the next moment after `moment` that is this time of day, in milliseconds.

        If the clocks skip the time, it comes as much later as they were set forward; if it comes
        twice, the first one counts. So every day has exactly one.
        """
        local = (_EPOCH + moment * _MILLISECOND).astimezone(self.zone)
        date = local.date() - _DAY  # the clocks may have skipped the time on a shorter day
        while True:
            found = datetime.combine(date, self.at, self.zone)
            milliseconds = (found.astimezone(UTC) - _EPOCH) // _MILLISECOND
            if milliseconds > moment:
                return milliseconds
            date += _DAY
