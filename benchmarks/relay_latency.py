"""
From commit to a `read_committed` consumer: `make bench-relay_latency`.

Open loop: each transaction has its time, whether or not the one before is done. The clock starts
when the writer's COMMIT returns and stops when the consumer has the record. The floor is a bare
loop of Kafka transactions with the same events at the same times, without any Postgres. All are
measured in turn, several times, on warm servers; percentiles are the medians.

The floor has the machine to itself. `--beside` adds a second floor, which shares the machine with
the writers to Postgres, as the relay does.
"""

import argparse
import gc
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawArray
from statistics import median
from typing import TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import harness
from benchmarks.warming import KAFKA_JAVA, recycle, warm
from benchmarks.writing import APPEND, KEYS, SIZE, Run, Statement, write_all
from dovecote.devstack import Stack
from outbox import Event
from outbox.envelope import encode
from relay.kafka.properties import producer_properties

WARMING = 5_000, 8
"""Least number of events a second, and number of seconds, with which the broker is warmed up."""

_MANY = 1_000
"""Records that are taken at a time."""


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
        # The broker compiles code for a higher rate only at that rate.
        rate, seconds = WARMING
        captures, warming = cycle(args.captures), Run(max(rate, *args.rates), seconds, warm_up=0)

        def turn() -> None:
            through_kafka_alone(stack, warming)
            through_relay(stack, warming, next(captures), args.mode)

        warm(stack.kafka, turn)
        for rate in args.rates:
            run = Run(rate, args.seconds, args.warm_up)
            measure(stack, run, args)


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
    recycle(stack.postgres)
    with harness.relay(stack, dsn, name=topic, mode=mode, capture=capture) as pid:
        percentiles = seen_through(stack, dsn, topic, run, APPEND)
        cpu = harness.cpu_seconds(pid)
    harness.drop_slots(dsn)
    return {**percentiles, "relay_cpu_share": round(cpu / (run.seconds + run.warm_up), 3)}


def _medians(rounds: Sequence[Measured]) -> Measured:
    return {name: round(median(each[name] for each in rounds), 3) for name in rounds[0]}


def seen_through(
    stack: Stack, dsn: str, topic: str, run: Run, statement: Statement
) -> Mapping[str, float]:
    """
    Write events at their times, and return the percentiles from commit to consumer.

    It also returns how long the slowest transaction took: after that one, all overdue events come
    at once.
    """
    committed, begun = RawArray("d", run.total), RawArray("d", run.total)
    with _process(write_all, dsn, topic, run, statement, committed, begun):
        seen = receive(stack.kafka.bootstrap, topic, run.total)
    firsts = range(run.rate * run.warm_up, run.total, run.per_transaction)
    slowest = max(committed[n] - begun[n] for n in firsts)
    return {**_percentiles(run, seen, committed), "commit_max_ms": round(slowest * 1000, 2)}


def _percentiles(run: Run, seen: "array[float]", since: "array[float]") -> Mapping[str, float]:
    counted = range(run.rate * run.warm_up, run.total)
    return harness.percentiles([seen[n] - since[n] for n in counted])


def through_kafka_alone(stack: Stack, run: Run) -> Mapping[str, float]:
    """Return the percentiles of a loop of transactions, each with all events due by then."""
    topic = harness.topic(stack)
    due = RawArray("d", run.total)
    with _process(produce_all, stack.kafka.bootstrap, topic, run.rate, due):
        seen = receive(stack.kafka.bootstrap, topic, run.total)
    return _percentiles(run, seen, due)


def beside_writers(stack: Stack, run: Run) -> Mapping[str, float]:
    """As `through_kafka_alone`, while the same events are written to Postgres, where they stay."""
    dsn, committed = harness.database(stack), RawArray("d", run.total)
    recycle(stack.postgres)
    with _process(write_all, dsn, "bench-unread", run, APPEND, committed):
        return through_kafka_alone(stack, run)


@contextmanager
def _process(target: Callable[..., None], *args: object) -> Iterator[None]:
    """Run `target` in its own process, which must end without an error."""
    process = get_context("spawn").Process(target=target, args=args)
    process.start()
    try:
        yield
    finally:
        process.join()
    if process.exitcode != 0:
        raise SystemExit(f"{target.__name__} ended with {process.exitcode}")


def produce_all(bootstrap: str, topic: str, rate: int, due: "array[float]") -> None:
    """Produce event n at its time, or with the first transaction that begins after it."""
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


def _event(topic: str, n: int) -> Event:
    value = str(n).encode().ljust(SIZE)
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
    # Nothing here has cycles, and a collection would delay all events that come meanwhile.
    gc.disable()
    while left:
        message = consumer.poll(1)
        if message is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"{left} of {total} events never came")
            continue
        # Take all other records that are there by now, in one call.
        messages = [message, *consumer.consume(_MANY, 0)]
        now = time.monotonic()
        for message in messages:
            n = int(message.value() or b"")
            if seen[n]:
                raise SystemExit(f"event {n} came twice")
            seen[n] = now
        left -= len(messages)
    gc.enable()
    consumer.close()
    return seen


if __name__ == "__main__":
    main()
