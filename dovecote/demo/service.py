"""
The flight-operations service: its tables, and a writer that updates them.

Run as a program it is one writer: `python -m dovecote.demo.service --dsn … --writer 0
--writers 4`. The connection string may also be `DOVECOTE_DSN`.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from itertools import count

import psycopg

import outbox
from dovecote.demo.flights import flights
from dovecote.demo.story import Step, Transaction, transactions

_NICE = 5

TABLES = """
CREATE SCHEMA IF NOT EXISTS flight_ops;

-- What the service is about.
CREATE TABLE IF NOT EXISTS flight_ops.flight (
    flight          text PRIMARY KEY,
    carrier         text NOT NULL,
    origin          text NOT NULL,
    destination     text NOT NULL,
    scheduled       timestamptz NOT NULL,
    stage           int NOT NULL,
    status          text NOT NULL,
    departure_delay int,
    arrival_delay   int,
    version         int NOT NULL DEFAULT 1
);

-- One row for each event that the service wrote: what the check believes was committed.
CREATE TABLE IF NOT EXISTS flight_ops.event_log (
    "row"    text PRIMARY KEY,
    event_id uuid NOT NULL,
    type     text NOT NULL,
    flight   text NOT NULL,
    number   int NOT NULL
);
"""

# One statement locks all flights in one order, so that writers never deadlock. The lock, not the
# request, decides which number an event gets. `outbox.write` comes after it, so the numbers are
# also in the order in which Kafka has the flight's events.
_TAKE = """
INSERT INTO flight_ops.flight AS known
    (flight, carrier, origin, destination, scheduled, stage, status,
     departure_delay, arrival_delay)
SELECT * FROM unnest(%(flight)s::text[], %(carrier)s::text[], %(origin)s::text[],
    %(destination)s::text[], %(scheduled)s::timestamptz[], %(stage)s::int[], %(status)s::text[],
    %(departure_delay)s::int[], %(arrival_delay)s::int[]) AS told (flight)
ORDER BY told.flight
ON CONFLICT (flight) DO UPDATE SET
    version = known.version + 1,
    -- Requests may overtake each other: what is known already is not unlearnt.
    stage = greatest(known.stage, excluded.stage),
    status = CASE WHEN excluded.stage > known.stage THEN excluded.status ELSE known.status END,
    departure_delay = coalesce(excluded.departure_delay, known.departure_delay),
    arrival_delay = coalesce(excluded.arrival_delay, known.arrival_delay)
RETURNING flight, version
"""

_LOG = """
INSERT INTO flight_ops.event_log ("row", event_id, type, flight, number)
SELECT * FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::int[])
"""


def install(conn: psycopg.Connection) -> None:
    """Create the service's tables."""
    conn.execute(TABLES)


def write(
    conn: psycopg.Connection, steps: Iterable[Step], *, topic: str, rows: Iterable[str]
) -> None:
    """
    Write `steps`, of different flights: business rows and events, in the caller's transaction.

    Each event gets the next of `rows`, which distinguishes it from another event with the same id.
    """
    taken = sorted(steps, key=lambda step: step.flight.key)
    numbers: dict[str, int] = dict(conn.execute(_TAKE, _columns(taken)).fetchall())
    named = list(zip(taken, rows, strict=False))
    events = [_event(step, topic, row, numbers[step.flight.key]) for step, row in named]
    conn.execute(
        _LOG,
        [
            [row for _, row in named],
            [step.id for step in taken],
            [step.type for step in taken],
            [step.flight.key for step in taken],
            [numbers[step.flight.key] for step in taken],
        ],
    )
    outbox.write(conn, *events)


def write_all(
    conn: psycopg.Connection, plan: Iterable[Transaction], *, topic: str, writer: int
) -> dict[str, int]:
    """Execute a plan, one transaction after the other; return the number of each outcome."""
    rows = (f"{writer}-{number}" for number in count(1))
    done = {"committed": 0, "rolled_back": 0}
    for planned in plan:
        write(conn, planned.steps, topic=topic, rows=rows)
        if planned.is_rolled_back:
            conn.rollback()
            done["rolled_back"] += 1
        else:
            conn.commit()
            done["committed"] += 1
    return done


def _columns(steps: list[Step]) -> Mapping[str, list[object]]:
    return {
        "flight": [step.flight.key for step in steps],
        "carrier": [step.flight.carrier for step in steps],
        "origin": [step.flight.origin for step in steps],
        "destination": [step.flight.destination for step in steps],
        "scheduled": [step.flight.scheduled for step in steps],
        "stage": [step.stage for step in steps],
        "status": [step.type for step in steps],
        "departure_delay": [step.departure_delay for step in steps],
        "arrival_delay": [step.arrival_delay for step in steps],
    }


def _event(step: Step, topic: str, row: str, number: int) -> outbox.Event:
    flight = step.flight
    return outbox.Event(
        topic=topic,
        key=flight.key,
        type=step.type,
        id=step.id,
        source="/flight-ops",
        subject=flight.key,
        time=step.time,
        value={
            "flight": flight.key,
            "row": row,
            "number": number,
            "carrier": flight.carrier,
            "tail": flight.tail,
            "origin": flight.origin,
            "destination": flight.destination,
            "scheduled": flight.scheduled.isoformat(),
            "departure_delay": step.departure_delay,
            "arrival_delay": step.arrival_delay,
        },
    )


def main() -> None:
    """Be one writer; print how many transactions ended how, as JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m dovecote.demo.service", description=main.__doc__
    )
    dsn = os.environ.get("DOVECOTE_DSN")
    parser.add_argument("--dsn", required=dsn is None, default=dsn)
    parser.add_argument("--install", action="store_true", help="create its tables first")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--flights", type=int, required=True)
    parser.add_argument("--writer", type=int, required=True)
    parser.add_argument("--writers", type=int, required=True)
    given = parser.parse_args()
    # Four busy writers would otherwise keep the Spark job from warming up on two cores.
    os.nice(_NICE)
    plan = transactions(flights(given.flights), writer=given.writer, writers=given.writers)
    with psycopg.connect(given.dsn) as conn:
        if given.install:
            install(conn)
            conn.commit()
        done = write_all(conn, plan, topic=given.topic, writer=given.writer)
    sys.stdout.write(f"{json.dumps(done)}\n")


if __name__ == "__main__":
    main()
