"""
From commit to a `read_committed` consumer: `make bench-relay_latency`.

Open loop: each transaction has its time, whether or not the one before is done. The clock starts
when the writer's COMMIT returns and stops when `poll` returns the record.
"""

import argparse
import threading
import time
from array import array
from multiprocessing import get_context
from multiprocessing.sharedctypes import RawArray

import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness
from outbox import Event, write

CONNECTIONS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=5, help="seconds that are not counted")
    parser.add_argument("--mode", default="exactly_once")
    args = parser.parse_args()
    with harness.servers() as stack:
        for rate in args.rates:
            dsn, topic = harness.database(stack), harness.topic(stack)
            per_transaction = max(1, rate // 1_000)
            total = rate * (args.seconds + args.warm_up)
            committed = RawArray("d", total)
            with harness.relay(stack, dsn, name=topic, mode=args.mode) as pid:
                writer = get_context("spawn").Process(
                    target=write_all, args=(dsn, topic, rate, per_transaction, committed)
                )
                writer.start()
                seen = receive(stack.kafka.bootstrap, topic, total)
                writer.join()
                cpu = harness.cpu_seconds(pid)
            if writer.exitcode != 0:
                raise SystemExit(f"the writer ended with {writer.exitcode}")
            counted = range(rate * args.warm_up, total)
            harness.emit(
                "relay_latency",
                capture="table",
                mode=args.mode,
                rate=rate,
                events_per_transaction=per_transaction,
                seconds=args.seconds,
                **harness.percentiles([seen[n] - committed[n] for n in counted]),
                relay_cpu_share=round(cpu / (args.seconds + args.warm_up), 3),
            )


def write_all(dsn: str, topic: str, rate: int, group: int, committed: "array[float]") -> None:
    """Write event n at its time; several connections, each with every so-many-th transaction."""
    began = time.monotonic() + 1
    threads = [
        threading.Thread(target=_write, args=(dsn, topic, rate, group, committed, began, lane))
        for lane in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(
    dsn: str,
    topic: str,
    rate: int,
    group: int,
    committed: "array[float]",
    began: float,
    lane: int,
) -> None:
    with psycopg.connect(dsn) as conn:
        for first in range(lane * group, len(committed), CONNECTIONS * group):
            time.sleep(max(0, began + first / rate - time.monotonic()))
            numbers = range(first, min(first + group, len(committed)))
            write(conn, *[_event(topic, n) for n in numbers])
            conn.commit()
            now = time.monotonic()
            for n in numbers:
                committed[n] = now


def _event(topic: str, n: int) -> Event:
    value = str(n).encode().ljust(200)
    return Event(topic=topic, type="Benched", source="/bench", key=f"key-{n % 5_000}", value=value)


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
