"""When a daily trigger fires: the same time of day, whatever the clocks of its zone do."""

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
        Return the time of day in `text`; `zone_name` counts where the pattern has no offset.

        Raises:
            ValueError: it is not of the pattern.
        """
        found = pattern.parse(text)
        return cls(found.time, found.zone or zone(zone_name))

    def after(self, moment: int) -> int:
        """
        Return the first moment after `moment` at which this time of day is, in milliseconds.

        A time that the clocks leave out comes as much later as they were set on; of one that
        comes twice, the first counts. So every day has exactly one.
        """
        local = (_EPOCH + moment * _MILLISECOND).astimezone(self.zone)
        date = local.date() - _DAY  # a day that the clocks shorten may have been passed
        while True:
            found = datetime.combine(date, self.at, self.zone)
            milliseconds = (found.astimezone(UTC) - _EPOCH) // _MILLISECOND
            if milliseconds > moment:
                return milliseconds
            date += _DAY
