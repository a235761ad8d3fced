"""The rule of the Spark job's handler: which events of a flight may be published, and when."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

_LONG_DELAY = 120
_EARLIEST = -12

Value: TypeAlias = Mapping[str, Any]
"""The value of one of the service's events."""


class Movement(NamedTuple):
    """A departure or an arrival that may be published, with its value."""

    value: dict[str, Any]


class Unconfirmed(NamedTuple):
    """Perhaps later: the event must be confirmed first."""

    error: str


class Impossible(NamedTuple):
    """Never: the event describes something impossible."""

    error: str


def judge(
    type_: str, value: Value, *, at: int, attempt: int
) -> Movement | Unconfirmed | Impossible:
    """
    Return the verdict on a departure or arrival event, at `at` milliseconds.

    A delay of more than two hours must be seen twice before it is believed, and no flight leaves
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
