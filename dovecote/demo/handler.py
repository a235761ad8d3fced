"""The Spark job's handler of departure and arrival events."""

from dedup.rules.policies.results import Done, NonRetriable, Output, Result, Retry
from dovecote.demo.departures import Impossible, Movement, Unconfirmed, judge
from outbox.envelope import ATTEMPT
from outbox.event import Event

FILTER = "value.departure_delay != None"
"""
Passes departures and arrivals; `FlightScheduled` and `FlightCancelled` have no departure delay.
"""


def publish(event: Event) -> Result:
    """
    Publish a departure or an arrival, postpone it, or refuse it.

    Raises:
        NonRetriable: no later attempt could publish it.
    """
    value = event.value
    if not isinstance(value, dict):
        msg = f"the value of event {event.id} is not an object"
        raise NonRetriable(msg)
    attempt = int(dict(event.headers).get(ATTEMPT) or 1)
    at = int(event.time.timestamp() * 1000)
    match judge(event.type, value, at=at, attempt=attempt):
        case Movement(published):
            return Done(outputs=(Output(published),))
        case Unconfirmed(error):
            return Retry(error)
        case Impossible(error):
            raise NonRetriable(error)
