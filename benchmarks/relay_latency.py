"""
From commit to a `read_committed` consumer: `make bench-relay_latency`.

Open loop: each transaction has its time, whether or not the one before is done. The clock starts
when the writer's COMMIT returns and stops when `poll` returns the record. Beside it the floor: the
same events at the same times from a bare loop of Kafka transactions, without any Postgres. All are
measured in turn, several times, at a warm broker; percentiles are the medians.

The floor has the machine for itself; with `--beside` there is one more, beside the writers to
Postgres that the relay has beside it.
"""

import argparse
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawArray
from statistics import median
from typing import NamedTuple, TypeAlias

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import harness
from benchmarks.warming import KAFKA_JAVA, warm
from devstack import Stack
from outbox import Event
from outbox.envelope import encode
from relay.properties import producer_properties

CONNECTIONS = 4
KEYS = 5_000


WARMING = 5_000, 8
"""Events per second, and seconds, of what the broker is warmed by."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 5_000, 50_000])
    parser.add_argument("--captures", nargs="+", default=["table", "wal"])
    parser.add_argument("--seconds", type=int, default=12, help="of each measurement")
    parser.add_argument("--warm-up", type=int, default=3, help="seconds that are not counted")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mode", default="exactly_once")
    parser.add_argument(
        "--beside", action="store_true", help="the floor beside the writers to Postgres, too"
    )
    args = parser.parse_args()
    with harness.servers(KAFKA_JAVA) as stack:
        captures, warming = cycle(args.captures), Run(*WARMING, warm_up=0)

        def turn() -> None:
            through_kafka_alone(stack, warming)
            through_relay(stack, warming, next(captures), args.mode)

        warm(stack.kafka, turn)
        for rate in args.rates:
            run = Run(rate, args.seconds, args.warm_up)
            measure(stack, run, args)


class Run(NamedTuple):
    """So many events a second for so many seconds, the first of which are not counted."""

    rate: int
    seconds: int
    warm_up: int

    @property
    def total(self) -> int:
        return self.rate * (self.seconds + self.warm_up)

    @property
    def per_transaction(self) -> int:
        """A thousand transactions a second at most: one event each, or more."""
        return max(1, self.rate // 1_000)

    def percentiles(self, seen: "array[float]", since: "array[float]") -> Mapping[str, float]:
        counted = range(self.rate * self.warm_up, self.total)
        return harness.percentiles([seen[n] - since[n] for n in counted])


Measured: TypeAlias = Mapping[str, float]
"""Percentiles, and the share of a core that the relay took."""


def measure(stack: Stack, run: Run, args: argparse.Namespace) -> None:
    """Measure the floors and each capture in turn, several times; report the medians."""
    found: dict[str, list[Measured]] = {}
    for _ in range(args.rounds):
        found.setdefault("floor", []).append(through_kafka_alone(stack, run))
        if args.beside:
            found.setdefault("floor_beside_writers", []).append(beside_writers(stack, run))
        for capture in args.captures:
            through = through_relay(stack, run, capture, args.mode)
            found.setdefault(capture, []).append(through)
    medians = {name: _medians(each) for name, each in found.items()}
    floors = {name: medians[name] for name in medians if name.startswith("floor")}
    for capture in args.captures:
        harness.emit(
            "relay_latency",
            capture=capture,
            mode=args.mode,
            rate=run.rate,
            events_per_transaction=run.per_transaction,
            seconds=run.seconds,
            rounds=args.rounds,
            **medians[capture],
            **floors,
        )


def through_relay(stack: Stack, run: Run, capture: str, mode: str) -> Measured:
    dsn, topic = harness.database(stack, capture), harness.topic(stack)
    with harness.relay(stack, dsn, name=topic, mode=mode, capture=capture) as pid:
        percentiles = seen_through(stack, dsn, topic, run, write_numbers)
        cpu = harness.cpu_seconds(pid)
    return {**percentiles, "relay_cpu_share": round(cpu / (run.seconds + run.warm_up), 3)}


def _medians(rounds: Sequence[Measured]) -> Measured:
    return {name: round(median(each[name] for each in rounds), 3) for name in rounds[0]}


def seen_through(
    stack: Stack, dsn: str, topic: str, run: Run, write_some: "Write"
) -> Mapping[str, float]:
    """Write events at their times, and return the percentiles from commit to consumer."""
    committed = RawArray("d", run.total)
    with _process(write_all, dsn, topic, run, committed, write_some):
        seen = receive(stack.kafka.bootstrap, topic, run.total)
    return run.percentiles(seen, committed)


def through_kafka_alone(stack: Stack, run: Run) -> Mapping[str, float]:
    """Return the percentiles of a loop of transactions, each with all that was due by then."""
    topic = harness.topic(stack)
    due = RawArray("d", run.total)
    with _process(produce_all, stack.kafka.bootstrap, topic, run.rate, due):
        seen = receive(stack.kafka.bootstrap, topic, run.total)
    return run.percentiles(seen, due)


def beside_writers(stack: Stack, run: Run) -> Mapping[str, float]:
    """As `through_kafka_alone`, while the same events are written to Postgres, where they stay."""
    dsn, committed = harness.database(stack), RawArray("d", run.total)
    with _process(write_all, dsn, "bench-unread", run, committed, write_numbers):
        return through_kafka_alone(stack, run)


@contextmanager
def _process(target: Callable[..., None], *args: object) -> Iterator[None]:
    """Run `target` in a process of its own, which is to end well."""
    process = get_context("spawn").Process(target=target, args=args)
    process.start()
    try:
        yield
    finally:
        process.join()
    if process.exitcode != 0:
        raise SystemExit(f"{target.__name__} ended with {process.exitcode}")


def produce_all(bootstrap: str, topic: str, rate: int, due: "array[float]") -> None:
    """Produce event n at its time, or with the first transaction that begins behind it."""
    producer = Producer(
        producer_properties(
            {"bootstrap.servers": bootstrap},
            mode="exactly_once",
            transactional_id=topic,
            transaction_timeout=60,
        )
    )
    producer.init_transactions(30)
    records = [encode(_event(topic, n)) for n in range(len(due))]
    began, sent = time.monotonic() + 1, 0
    for n in range(len(due)):
        due[n] = began + n / rate
    while sent < len(due):
        time.sleep(max(0, due[sent] - time.monotonic()))
        now = time.monotonic()
        producer.begin_transaction()
        while sent < len(due) and due[sent] <= now:
            key, value, headers = records[sent]
            producer.produce(topic, value, key, headers=headers)  # type: ignore[arg-type]  # invariant list, only read
            sent += 1
        producer.commit_transaction(30)


Write: TypeAlias = Callable[[psycopg.Connection, str, range], None]
"""Writes the events of these numbers to a topic, in one statement, which commits by itself."""


_APPEND = """
SELECT outbox.append_many(
           topics => array_agg(%(topic)s::text),
           keys => array_agg(convert_to('key-' || n %% %(keys)s::int, 'UTF8')),
           "values" => array_agg(convert_to(format('%%-200s', n), 'UTF8')),
           types => array_agg('Benched'::text),
           ids => array_agg(md5(%(topic)s || n)::uuid),
           sources => array_agg('/bench'::text),
           subjects => array_agg(NULL::text),
           times => array_agg(clock_timestamp()),
           content_types => array_agg(NULL::text))
  FROM generate_series(%(first)s::int, %(last)s::int) AS n
"""
"""The writers are not what is measured: the server makes the events, for Debezium too."""


def write_numbers(conn: psycopg.Connection, topic: str, numbers: range) -> None:
    """Write events for the relay, as a service in any language may."""
    place = {"topic": topic, "keys": KEYS, "first": numbers[0], "last": numbers[-1]}
    conn.execute(_APPEND, place)


def write_all(
    dsn: str, topic: str, run: Run, committed: "array[float]", write_some: Write
) -> None:
    """Write event n at its time; several connections, each with every so-many-th transaction."""
    began = time.monotonic() + 1
    threads = [
        threading.Thread(target=_write, args=(dsn, topic, run, committed, write_some, began, lane))
        for lane in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(
    dsn: str,
    topic: str,
    run: Run,
    committed: "array[float]",
    write_some: Write,
    began: float,
    lane: int,
) -> None:
    group = run.per_transaction
    # Postgres would plan each statement anew, for as many numbers as it has.
    options = "-c plan_cache_mode=force_generic_plan"
    with psycopg.connect(dsn, autocommit=True, options=options) as conn:
        for first in range(lane * group, len(committed), CONNECTIONS * group):
            time.sleep(max(0, began + first / run.rate - time.monotonic()))
            numbers = range(first, min(first + group, len(committed)))
            write_some(conn, topic, numbers)
            now = time.monotonic()
            for n in numbers:
                committed[n] = now


def _event(topic: str, n: int) -> Event:
    value = str(n).encode().ljust(200)
    return Event(topic=topic, type="Benched", source="/bench", key=f"key-{n % KEYS}", value=value)


def receive(bootstrap: str, topic: str, total: int) -> "array[float]":
    """Return when each event was seen, by its number."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(harness.PARTITIONS)])
    seen = array("d", [0.0]) * total
    left, deadline = total, time.monotonic() + 25
    while left:
        message = consumer.poll(1)
        if message is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"{left} of {total} events never came")
            continue
        n = int(message.value() or b"")
        if seen[n]:
            raise SystemExit(f"event {n} came twice")
        seen[n] = time.monotonic()
        left -= 1
    consumer.close()
    return seen


if __name__ == "__main__":
    main()
