"""
How fast the relay drains a backlog: `make bench-relay_drain`.

The backlog is committed before the relay starts. The clock runs from the first commit seen at the
broker to the last, so start-up is left out, and so are the events of the first commits. The
yardstick is a bare `produce()` loop over the same records, in the same run.
"""

import argparse
import time
from contextlib import ExitStack
from itertools import product
from typing import NamedTuple

import psycopg
from confluent_kafka import Producer

from benchmarks import draining, harness
from dovecote.devstack import Stack
from outbox import Event, write
from outbox.envelope import encode
from relay.kafka.properties import producer_properties
from relay.rules.server.leaves import TABLES

PER_TRANSACTION = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of each value")
    parser.add_argument("--keys", type=int, default=5_000)
    parser.add_argument("--captures", nargs="+", default=["table", "wal"])
    parser.add_argument("--modes", nargs="+", default=["exactly_once", "at_least_once"])
    parser.add_argument("--shards", type=int, default=1, help="relays that share the work")
    parser.add_argument(
        "--one-transaction", action="store_true", help="commit the backlog as a whole, by SQL"
    )
    args = parser.parse_args()
    backlog = Backlog(args.events, args.size, args.keys, args.one_transaction)
    with harness.servers() as stack:
        for capture, mode in product(args.captures, args.modes):
            produce = bare_produce(stack, backlog._replace(total=min(args.events, 600_000)))
            drain(stack, backlog, capture=capture, mode=mode, produce=produce, shards=args.shards)


class Backlog(NamedTuple):
    """A backlog: the number and the size of its events."""

    total: int
    size: int
    keys: int
    in_one_transaction: bool = False

    def events(self, topic: str) -> list[Event]:
        value = b"x" * self.size
        return [
            Event(
                topic=topic,
                type="Benched",
                source="/bench",
                key=f"key-{n % self.keys}",
                value=value,
            )
            for n in range(self.total)
        ]


def bare_produce(stack: Stack, backlog: Backlog) -> float:
    """Return the rate of `produce()` and one flush, with everything else done beforehand."""
    name = harness.topic(stack)
    records = [encode(event) for event in backlog.events(name)]
    properties = producer_properties(
        {"bootstrap.servers": stack.kafka.bootstrap},
        mode="at_least_once",
        transactional_id="",
        transaction_timeout=60,
    )
    producer = Producer(properties)
    producer.list_topics(name, timeout=10)
    began = time.monotonic()
    for key, value, headers in records:
        producer.produce(name, value, key, headers=headers)  # type: ignore[arg-type]  # invariant list, only read
    producer.flush(60)
    return backlog.total / (time.monotonic() - began)


def drain(
    stack: Stack, backlog: Backlog, *, capture: str, mode: str, produce: float, shards: int = 1
) -> None:
    dsn, name = harness.database(stack, capture), harness.topic(stack)
    fill(dsn, backlog, name)
    started = time.monotonic()
    with ExitStack() as ending:
        settings = {"name": name, "mode": mode, "capture": capture, "shards": shards}
        pid, *beside = (
            ending.enter_context(harness.relay(stack, dsn, **settings)) for _ in range(shards)
        )
        drained = draining.watch(
            stack, name, pid, total=backlog.total, started=started, beside=beside
        )
    harness.emit(
        "relay_drain",
        capture=capture,
        mode=mode,
        events=backlog.total,
        value_bytes=backlog.size,
        keys=backlog.keys,
        partitions=harness.PARTITIONS,
        shards=shards,
        **drained.fields(),
        mb_per_s=round(drained.events_per_s * backlog.size / 1e6, 1),
        produce_mb_per_s=round(produce * backlog.size / 1e6, 1),
        produce_per_s=round(produce),
        share_of_produce=round(drained.events_per_s / produce, 3),
    )


def fill(dsn: str, backlog: Backlog, topic: str) -> None:
    """Commit a backlog."""
    with psycopg.connect(dsn) as conn:
        if backlog.in_one_transaction:
            conn.execute(
                "SELECT outbox.append(%s, convert_to('key-' || n %% %s, 'UTF8'), %s, 'Benched',"
                " source => '/bench') FROM generate_series(1, %s) AS n",
                [topic, backlog.keys, b"x" * backlog.size, backlog.total],
            )
        else:
            events = backlog.events(topic)
            for n in range(0, len(events), PER_TRANSACTION):
                write(conn, *events[n : n + PER_TRANSACTION])
                conn.commit()
    harness.settle(dsn, ", ".join(f"outbox.{table}" for table in TABLES))


if __name__ == "__main__":
    main()
