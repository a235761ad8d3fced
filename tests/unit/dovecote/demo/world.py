"""A tiny run of the demo, written by hand: the records of each witness if all is well."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from dovecote.demo.check.aggregated import Results
from dovecote.demo.check.deduplicated import Topics
from dovecote.demo.check.records import Record, Row

AT, HOUR = 1_357_000_000_000, 3_600_000


class Told(NamedTuple):
    """One event: its destination and its content."""

    partition: int
    offset: int
    row: str
    id: str
    type: str
    flight: str
    number: int
    delay: int | None


# Offsets have gaps, as transactions leave them. OK1 is on time, and one of its requests came
# twice; LATE's departure has to be confirmed; EARLY's cannot be; OFF is cancelled.
TOLD = (
    Told(0, 0, "0-1", "ok-s", "FlightScheduled", "OK1", 1, None),
    Told(0, 1, "1-1", "ok-d", "FlightDeparted", "OK1", 2, 5),
    Told(0, 3, "0-2", "ok-d", "FlightDeparted", "OK1", 3, 5),
    Told(0, 4, "1-2", "late-d", "FlightDeparted", "LATE", 1, 200),
    Told(0, 6, "0-3", "late-a", "FlightArrived", "LATE", 2, 200),
    Told(0, 7, "1-3", "ok-a", "FlightArrived", "OK1", 4, 5),
    Told(1, 0, "0-4", "early-d", "FlightDeparted", "EARLY", 1, -60),
    Told(1, 2, "0-5", "off-s", "FlightScheduled", "OFF", 1, None),
    Told(1, 3, "1-4", "off-c", "FlightCancelled", "OFF", 2, None),
)

ROWS = [Row(told.row, told.id, told.type, told.flight, told.number) for told in TOLD]


def record(told: Told) -> Record:
    value = {
        "flight": told.flight,
        "row": told.row,
        "number": told.number,
        "tail": "N1",
        "departure_delay": told.delay,
        "arrival_delay": told.delay if told.type == "FlightArrived" else None,
    }
    at = datetime.fromtimestamp((AT + told.offset * HOUR) / 1000, UTC)
    return Record(
        topic="flights",
        partition=told.partition,
        offset=told.offset,
        key=told.flight,
        value=json.dumps(value).encode(),
        headers={"ce_id": told.id, "ce_type": told.type, "ce_time": at.isoformat()},
    )


RECORDS = [record(told) for told in TOLD]


def moved(topic: str, offset: int, told: Told) -> Record:
    """Return the output of the event of `told`."""
    value = {
        "flight": told.flight,
        "tail": "N1",
        "at": AT + told.offset * HOUR,
        "delay": told.delay,
        "row": told.row,
    }
    return Record(
        topic=topic,
        partition=0,
        offset=offset,
        key=told.flight,
        value=json.dumps(value).encode(),
        headers={"ce_id": f"{told.id}.0", "ce_type": told.type},
    )


def failure(told: Told, topic: str, **delivery: str) -> Record:
    """Return the copy of the record of `told` in a topic for failures."""
    original = record(told)
    told_of = {f"dovecote_{name}": text for name, text in delivery.items()}
    return replace(original, topic=topic, offset=0, headers={**original.headers, **told_of})


RETRIED = failure(
    TOLD[3],
    "flights.retry",
    attempt="2",
    round="1",
    first_seen="1000",
    not_before="1900",
    origin="flights/0/4",
    error="LATE: a delay of 200 minutes is not confirmed yet",
)
DEAD = failure(
    TOLD[6],
    "flights.dead",
    attempt="1",
    round="0",
    first_seen="1000",
    origin="flights/1/0",
    error="EARLY cannot have left 60 minutes early",
)
# It came back, and counted then.
BACK = replace(RETRIED, topic="flights", offset=9)
INPUT = [*RECORDS, BACK]
TOPICS = Topics(
    departures=[moved("departures", 0, TOLD[1]), moved("departures", 1, TOLD[3])],
    arrivals=[moved("arrivals", 0, TOLD[4]), moved("arrivals", 1, TOLD[5])],
    retry=[RETRIED],
    dead_letter=[DEAD],
)


def said(topic: str, **value: object) -> Record:
    """Return a result of pairing or sessions."""
    return Record(topic, 0, 0, None, json.dumps(value).encode(), {})


TRIPS = [
    said("trips", flight="OK1", ts=AT + HOUR, departure=5, arrival=5),
    said("trips", flight="LATE", ts=AT + 4 * HOUR, departure=200, arrival=200),
]
DAYS = [
    said(
        "days", kind="result", key=["N1"], start=AT + HOUR, end=AT + 4 * HOUR, value=2, revision=3
    )
]
RESULTS = Results(TRIPS, DAYS, [])
