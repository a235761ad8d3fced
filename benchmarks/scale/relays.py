"""Measure what an event costs a relay, over the backlog, keys, topics, shards and old rows."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.request import urlopen
from uuid import uuid4

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import harness
from benchmarks.scale.points import Curve, Point, sizes
from dovecote.devstack import Stack
from dovecote.devstack.places import free_port

_PUBLISHED = re.compile(r"^dovecote_relay_events_published_total\{.*\} (\S+)$", re.MULTILINE)
_VALUE = b"x" * 200
_KEYS = 5_000
_WARM = 20_000
_EVENTS = 200_000
# A small backlog comes several times: the kernel counts processor time in hundredths of a second.
_LEAST = 100_000
_COST = "processor time of the relay"
_APART = 50
"""A relay is asked no more often than its answer takes, so many times."""

_APPEND = b"""
SELECT outbox.append(%(topic)s || (n %% %(topics)s), convert_to('key-' || n %% %(keys)s, 'UTF8'),
    %(value)s, 'Benched', source => '/bench')
FROM generate_series(1, %(count)s) AS n
"""


@dataclass(slots=True)
class _Relays:
    """Relays of one outbox, and the connection that writes to it."""

    conn: psycopg.Connection
    pids: list[int]
    ports: list[int]
    topic: str
    topics: int

    def cpu(self) -> float:
        return sum(harness.cpu_seconds(pid) for pid in self.pids)

    def peak_mb(self) -> float:
        return round(max(harness.peak_bytes(pid) for pid in self.pids) / 1e6, 1)

    def published(self) -> int:
        found = 0.0
        for port in self.ports:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                found += sum(map(float, _PUBLISHED.findall(answer.read().decode())))
        return round(found)

    def append(self, count: int, *, keys: int = _KEYS) -> None:
        """Write events in one transaction, which the caller commits."""
        given = {"topic": self.topic, "topics": self.topics, "keys": keys, "value": _VALUE}
        self.conn.execute(_APPEND, {**given, "count": count})

    def publish(self, count: int, *, keys: int = _KEYS) -> float:
        """Return the processor time from a commit until all of its events are published."""
        self.append(count, keys=keys)
        began = time.monotonic()
        wanted = self.published() + count
        # To write the metrics of a thousand topics takes a relay more than their events.
        every = max(0.1, _APART * (time.monotonic() - began))
        before = self.cpu()
        self.conn.commit()
        harness.until(
            lambda: self.published() >= wanted, within=900, what=f"{count} events", every=every
        )
        return self.cpu() - before

    def point(self, size: int, count: int, *, keys: int = _KEYS) -> Point:
        rounds = max(1, _LEAST // count)
        used = sum(self.publish(count, keys=keys) for _ in range(rounds))
        cost = used / (rounds * count) * 1e6
        return Point(size, round(cost, 2), self.peak_mb())


@contextmanager
def _relays(
    stack: Stack, *, topics: int = 1, shards: int = 1, retention: str = "0s"
) -> Iterator[_Relays]:
    """Run the relays of a new outbox, warm."""
    dsn, name = harness.database(stack), f"bench-{uuid4().hex[:8]}-"
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    for first in range(0, topics, 500):
        some = range(first, min(first + 500, topics))
        partitions = harness.PARTITIONS if topics == 1 else 1
        wanted = [NewTopic(f"{name}{number}", partitions) for number in some]
        for made in admin.create_topics(wanted).values():
            made.result(120)
    ports = [free_port() for _ in range(shards)]
    with ExitStack() as held:
        pids = [
            held.enter_context(
                harness.relay(
                    stack,
                    dsn,
                    name=name,
                    capture="table",
                    shards=shards,
                    retention=retention,
                    http={"port": port},
                )
            )
            for port in ports
        ]
        conn = held.enter_context(psycopg.connect(dsn))
        relays = _Relays(conn, pids, ports, name, topics)
        harness.until(lambda: _answers(relays), within=60, what="the relays answer")
        relays.publish(_WARM)
        yield relays


def _answers(relays: _Relays) -> bool:
    try:
        relays.published()
    except OSError:
        return False
    return True


def backlog(stack: Stack, most: int) -> Curve:
    """Return the cost over the events that are committed at once."""
    with _relays(stack) as relays:
        points = [relays.point(size, size) for size in sizes(10_000, most)]
    return Curve("relay-backlog", "events committed at once", _COST, tuple(points))


def keys(stack: Stack, most: int) -> Curve:
    """Return the cost over the keys of the events."""
    with _relays(stack) as relays:
        points = [relays.point(size, _EVENTS, keys=size) for size in sizes(100, most)]
    return Curve("relay-keys", "keys", _COST, tuple(points))


def topics(stack: Stack, most: int) -> Curve:
    """Return the cost over the topics that the events go to."""
    points = []
    for size in sizes(1, most):
        with _relays(stack, topics=size) as relays:
            points.append(relays.point(size, _EVENTS))
    return Curve("relay-topics", "topics", _COST, tuple(points))


def shards(stack: Stack, most: int) -> Curve:
    """Return the cost over the shards, of all relays together."""
    points = []
    for size in (each for each in (1, 2, 4) if each <= most):
        with _relays(stack, shards=size) as relays:
            points.append(relays.point(size, _EVENTS))
    return Curve("relay-shards", "shards", f"{_COST}s together", tuple(points))


def retained(stack: Stack, most: int) -> Curve:
    """Return the cost over the published rows that `retention` keeps in the table."""
    points = []
    with _relays(stack, retention="720h") as relays:
        kept = relays.published()
        for size in sizes(100_000, most):
            while kept < size:
                some = min(500_000, size - kept)
                relays.publish(some)
                kept += some
            points.append(relays.point(size, _EVENTS))
            kept += _EVENTS
    return Curve("relay-retained", "published rows in the table", _COST, tuple(points))
