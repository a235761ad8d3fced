"""When the daily triggers of a step fire."""

from outbox.errors import DovecoteError
from spark_jobs.operators.aggregation.config import (
    EventTimeTrigger,
    OnceADay,
    TimeTrigger,
    Trigger,
)
from spark_jobs.operators.aggregation.triggers.clocks import Daily
from spark_jobs.operators.aggregation.triggers.time_patterns import TimePattern
from spark_jobs.operators.aggregation.windows import WindowsOfKey

_DAY = 86_400_000


class DailyTimes:
    """The times of day of a trigger, which may be of another kind: then it is never asked."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self.daily = trigger.daily() if isinstance(trigger, TimeTrigger) else None
        self.said = _said(trigger)

    def read(self, text: str) -> Daily:
        trigger = self._trigger
        if not isinstance(trigger, EventTimeTrigger):
            msg = "only timeFromEvent reads times"
            raise TypeError(msg)
        try:
            return Daily.parse(text, TimePattern(trigger.time_pattern), trigger.time_zone)
        except ValueError as error:
            raise BadTime(str(error)) from error

    def following(self, held: WindowsOfKey, passed: int) -> int:
        """Return the next time at which the daily trigger fires."""
        try:
            return (self.daily or self.read(held.at or "")).after(passed)
        except BadTime:  # the pattern has changed since the text was found
            return passed + _DAY

    def rescheduled(self, held: WindowsOfKey) -> int:
        """Return when the trigger fires for what was computed by an earlier one."""
        since = held.next - _DAY if held.window is None else held.window.opened
        try:
            return (self.daily or self.read(held.at or "")).after(since)
        except BadTime:  # the text is not of the new pattern
            return held.next


def _said(trigger: Trigger) -> str:
    """Return what decides when a daily trigger fires; empty: it is none."""
    if not isinstance(trigger, OnceADay):
        return ""
    at = trigger.time if isinstance(trigger, TimeTrigger) else ""
    return f"{at} {trigger.time_pattern} {trigger.time_zone}"


class BadTime(DovecoteError):
    """A script returned a text that does not match the time pattern."""
