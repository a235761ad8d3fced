"""What the Spark job does with the first event of a flight that tells its departure."""

from dedup.results import Done, NonRetriable, Output, Result, Retry
from demo.departures import Departure, Impossible, Unconfirmed, judge
from outbox.event import Event

FILTER = "value.departure_delay != None"
"""Passes the events that know the departure; `FlightScheduled` and `FlightCancelled` do not."""


def publish_departure(event: Event) -> Result:
    """
    Publish the departure, put it off, or refuse it.

    Raises:
        NonRetriable: no later attempt could publish it.
    """
    value = event.value
    if not isinstance(value, dict):
        msg = f"the value of event {event.id} is not an object"
        raise NonRetriable(msg)
    match judge(event.type, value):
        case Departure(published):
            return Done(outputs=(Output(published),))
        case Unconfirmed(error):
            return Retry(error)
        case Impossible(error):
            raise NonRetriable(error)
