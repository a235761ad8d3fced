"""When a flight's departure may be published: the rule that the Spark job's handler applies."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

_LONG_DELAY = 120
_EARLIEST = -12

Value: TypeAlias = Mapping[str, Any]
"""The value of one of the service's events."""


class Departure(NamedTuple):
    """The departure is known and may be published, as this value."""

    value: dict[str, Any]


class Unconfirmed(NamedTuple):
    """Perhaps later: what the event says must be confirmed first."""

    error: str


class Impossible(NamedTuple):
    """Never: what the event says cannot be."""

    error: str


def judge(type_: str, value: Value) -> Departure | Unconfirmed | Impossible:
    """
    Return what becomes of an event that knows the departure's delay.

    A delay of more than two hours counts only once the flight has arrived with it, and nobody
    leaves more than twelve minutes ahead of the timetable.
    """
    delay = value["departure_delay"]
    if delay < _EARLIEST:
        return Impossible(f"{value['flight']} cannot have left {-delay} minutes early")
    if delay > _LONG_DELAY and type_ == "FlightDeparted":
        return Unconfirmed(f"{value['flight']}: a delay of {delay} minutes is not confirmed yet")
    return Departure(
        {
            "flight": value["flight"],
            "departure_delay": delay,
            "known_from": type_,
            "row": value["row"],
        }
    )
