"""Measure the bytes that an event makes Postgres and Kafka write."""

import json
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks import draining, harness
from benchmarks.costing.parts import PARTS, Place, prepare, running
from dovecote.devstack import Stack
from outbox import Event, write
from relay.rules.server.leaves import TABLES

_KEYS = 5_000
# The relay changes the leaf after 10 s (`rotate_every`), and then makes room.
_MAKES_ROOM_SECONDS = 25.0
_BETWEEN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Way:
    """How events are written."""

    name: str
    events: int
    per_transaction: int


WAYS: Sequence[Way] = (Way("bulk", 50_000, 100), Way("singly", 600, 1))
"""A backlog, which the relay drains; and events that come one by one while the relay runs."""


def measure(stack: Stack) -> None:
    """Print a line for each way to write, each capture, and with published rows kept and not."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as conn:
        # The log is one for all databases: it would have the vacuum of those that were measured.
        conn.execute("ALTER SYSTEM SET autovacuum = off")
        conn.execute("SELECT pg_reload_conf()")
    for way in WAYS:
        _plain(stack, way)
        for capture, retention in (("table", "0s"), ("table", "1h"), ("wal", "0s")):
            with tempfile.TemporaryDirectory() as folder:
                at = prepare(stack, Path(folder), capture=capture, retention=retention)
                harness.settle(at.dsn, ", ".join(f"outbox.{table}" for table in TABLES))
                if way.per_transaction == 1:
                    _as_they_come(at, way)
                else:
                    _backlog(at, way)
            harness.drop_slots(at.dsn)


def value(number: int) -> bytes:
    """Return a value of 200 bytes, a third of which no compression can shorten."""
    fields = {"order": number, "state": "placed", "customer": secrets.token_hex(32)}
    text = json.dumps(fields).encode()
    filler = {**fields, "note": "x" * (200 - len(text) - len(b', "note": ""'))}
    return json.dumps(filler).encode()


def event(topic: str, number: int) -> Event:
    """Return the event of this number."""
    key = f"key-{number % _KEYS}"
    return Event(topic=topic, type="Benched", source="/bench", key=key, value=value(number))


def _plain(stack: Stack, way: Way) -> None:
    """Print the bytes of the log for a row with the same columns, without an outbox."""
    with psycopg.connect(harness.empty_database(stack)) as conn:
        conn.execute("CREATE TABLE plain (id bigint PRIMARY KEY, key text, value bytea)")
        conn.commit()
        with _written(conn) as wal:
            for first in range(0, way.events, way.per_transaction):
                rows = [
                    (number, f"key-{number % _KEYS}", value(number))
                    for number in range(first, first + way.per_transaction)
                ]
                conn.cursor().executemany("INSERT INTO plain VALUES (%s, %s, %s)", rows)
                conn.commit()
    _tell(way, "a plain row", "", {"wal_bytes": wal[0]})


def _backlog(at: Place, way: Way) -> None:
    """Write a backlog, then drain it."""
    with psycopg.connect(at.dsn) as conn:
        with _written(conn) as writers:
            for first in range(0, way.events, way.per_transaction):
                numbers = range(first, first + way.per_transaction)
                write(conn, *(event(at.topic, number) for number in numbers))
                conn.commit()
        table = _stored(conn)
        kafka = _logs(at.stack)
        with _written(conn) as relays, running(PARTS["relay"], at):
            draining.until_published(at.stack, at.topic, way.events)
            time.sleep(_MAKES_ROOM_SECONDS)
        left = _stored(conn)
    found = {"wal_bytes": writers[0], "relay_wal_bytes": relays[0]}
    found |= {"stored_bytes": table, "stored_bytes_after": left}
    _tell(way, at.capture, at.retention, found | _grown(kafka, at))


def _as_they_come(at: Place, way: Way) -> None:
    """Write events one by one while a relay publishes them, each in a transaction of its own."""
    with psycopg.connect(at.dsn) as conn, running(PARTS["relay"], at):
        write(conn, event(at.topic, 0))
        conn.commit()
        draining.until_published(at.stack, at.topic, 1)
        kafka = _logs(at.stack)
        with _written(conn) as wal:
            for number in range(1, way.events + 1):
                write(conn, event(at.topic, number))
                conn.commit()
                time.sleep(_BETWEEN_SECONDS)
            draining.until_published(at.stack, at.topic, way.events + 1)
            time.sleep(_MAKES_ROOM_SECONDS)
        left = _stored(conn)
    found = {"wal_bytes": wal[0], "stored_bytes_after": left}
    _tell(way, at.capture, at.retention, found | _grown(kafka, at))


@contextmanager
def _written(conn: psycopg.Connection) -> Iterator[list[int]]:
    """Yield a list that gets the bytes of the log that were written within the block."""
    found: list[int] = []
    before = _place(conn)
    yield found
    found.append(_place(conn) - before)


def _place(conn: psycopg.Connection) -> int:
    ((place,),) = conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchall()
    conn.commit()
    return int(place)


def _stored(conn: psycopg.Connection) -> int:
    """Return the bytes of the outbox's tables and indexes."""
    ((size,),) = conn.execute(
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class"
        " WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r'"
    ).fetchall()
    conn.commit()
    return int(size)


def _logs(stack: Stack) -> Mapping[str, int]:
    """Return the bytes of the log of each topic at the broker."""
    found: dict[str, int] = {}
    for file in stack.kafka.directory.rglob("*.log"):
        topic, _, partition = file.parent.name.rpartition("-")
        if partition.isdigit():
            found[topic] = found.get(topic, 0) + file.stat().st_size
    return found


def _grown(before: Mapping[str, int], at: Place) -> dict[str, int]:
    after = _logs(at.stack)
    grown = {topic: size - before.get(topic, 0) for topic, size in after.items()}
    return {
        "kafka_bytes": grown.get(at.topic, 0),
        "kafka_progress_bytes": grown.get(f"dovecote.progress.{at.topic}", 0),
        "kafka_transactions_bytes": grown.get("__transaction_state", 0),
    }


def _tell(way: Way, what: str, retention: str, found: Mapping[str, int]) -> None:
    harness.emit(
        "costs_disk",
        way=way.name,
        what=what,
        retention=retention,
        events=way.events,
        per_transaction=way.per_transaction,
        value_bytes=200,
        **{f"{name}_per_event": round(size / way.events, 1) for name, size in found.items()},
    )
