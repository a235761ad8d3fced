"""What of a flight's events may be published, and when: the rule of the Spark job's handler."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

_LONG_DELAY = 120
_EARLIEST = -12

Value: TypeAlias = Mapping[str, Any]
"""The value of one of the service's events."""


class Movement(NamedTuple):
    """A departure or an arrival that may be published, as this value."""

    value: dict[str, Any]


class Unconfirmed(NamedTuple):
    """Perhaps later: what the event says must be confirmed first."""

    error: str


class Impossible(NamedTuple):
    """Never: what the event says cannot be."""

    error: str


def judge(
    type_: str, value: Value, *, at: int, attempt: int
) -> Movement | Unconfirmed | Impossible:
    """
    Return what becomes of an event that tells of a departure or an arrival, `at` milliseconds.

    A delay of more than two hours is looked at twice before it is believed, and nobody leaves
    more than twelve minutes ahead of the timetable.
    """
    has_left = type_ == "FlightDeparted"
    delay = value["departure_delay" if has_left else "arrival_delay"]
    if has_left and delay < _EARLIEST:
        return Impossible(f"{value['flight']} cannot have left {-delay} minutes early")
    if has_left and delay > _LONG_DELAY and attempt == 1:
        return Unconfirmed(f"{value['flight']}: a delay of {delay} minutes is not confirmed yet")
    return Movement(
        {
            "flight": value["flight"],
            "tail": value["tail"],
            "at": at,
            "delay": delay,
            "row": value["row"],
        }
    )
