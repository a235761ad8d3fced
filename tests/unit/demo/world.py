"""A tiny run of the demo, written by hand: what each witness says when all is well."""

import json
from dataclasses import replace
from typing import NamedTuple

from demo.check.deduplicated import Topics
from demo.check.records import Batch, Counts, Marker, Record, Row, Spark


class Told(NamedTuple):
    """One event: where it ended up and what it says."""

    partition: int
    offset: int
    row: str
    id: str
    type: str
    flight: str
    number: int
    delay: int | None


# Offsets have gaps, as transactions leave them. OK1 is on time and one of its requests came twice;
# LATE's departure has to be confirmed; EARLY's cannot be; OFF is cancelled.
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
        "departure_delay": told.delay,
    }
    return Record(
        topic="flights",
        partition=told.partition,
        offset=told.offset,
        key=told.flight,
        value=json.dumps(value).encode(),
        headers={"ce_id": told.id, "ce_type": told.type},
    )


RECORDS = [record(told) for told in TOLD]

# Batch 0 ends after the first of LATE's records, so OK1 and LATE are tried in batch 1 again.
BATCHES = [Batch(0, {}, {0: 4, 1: 2}), Batch(1, {0: 4, 1: 2}, {0: 9, 1: 5})]

MARKERS = [
    Marker(
        query="q",
        batch=0,
        partition=0,
        partitions=2,
        ranges={0: (0, 3)},
        counts=Counts(rows=3, handled=1, filtered=1, duplicate=1),
    ),
    Marker(
        query="q",
        batch=0,
        partition=1,
        partitions=2,
        ranges={1: (0, 0)},
        counts=Counts(rows=1, dead=1),
    ),
    Marker(
        query="q",
        batch=1,
        partition=0,
        partitions=2,
        ranges={0: (7, 7), 1: (2, 3)},
        counts=Counts(rows=3, handled=1, filtered=2),
    ),
    Marker(
        query="q",
        batch=1,
        partition=1,
        partitions=2,
        ranges={0: (4, 6)},
        counts=Counts(rows=2, handled=1, retried=1),
    ),
]

SPARK = Spark(query="q", batches=BATCHES, uncommitted=[], markers=MARKERS)


def departure(offset: int, told: Told) -> Record:
    """Return the output of the winner `told`."""
    value = {
        "flight": told.flight,
        "departure_delay": told.delay,
        "known_from": told.type,
        "row": told.row,
    }
    return Record(
        topic="departures",
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
TOPICS = Topics(
    output=[departure(0, TOLD[1]), departure(1, TOLD[4]), departure(2, TOLD[5])],
    retry=[RETRIED],
    dead_letter=[DEAD],
)
