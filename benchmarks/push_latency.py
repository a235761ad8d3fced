"""
What `push` adds to a record's way: `make bench-push_latency`.

Records are produced at a steady pace, whatever becomes of them (an open loop), and each knows when
it should have been produced. `added` is from then until its first request is at the target:
producing, the broker, and `push`. `visible` is from when the broker had it, to the millisecond
below. Besides there may be endpoints with records of their own, at a tenth of the pace each: in
`well` they answer at once, in `trouble` they are slow, fail, or never answer.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness, pushed
from devstack.kafka import SERVING_JAVA_OPTIONS

KEYS = 5_000
SECONDS = 12
WARM_SECONDS = 2
BROKER_WARM_SECONDS = 20
TICK_SECONDS = 0.001
"""Records are produced a tick at a time, as a busy service does: none before its own time."""

BESIDE = {"": (), "well": ("also-fast",) * 3, "trouble": ("slow-too", "failing", "black-hole")}


class Load(NamedTuple):
    """One measurement."""

    in_flight: int
    per_s: int
    beside: Literal["", "well", "trouble"] = ""


LOADS = [
    Load(10, 2_500),
    Load(100, 2_500),
    Load(1_000, 2_500),
    Load(100, 1_000),
    Load(100, 1_000, "well"),
    Load(100, 1_000, "trouble"),
]


class Measured(NamedTuple):
    """What one load came to, on the machine's monotonic clock."""

    intended: Sequence[float]
    visible: Sequence[float]
    arrived: Sequence[float]
    """0: it did not."""

    told: dict[str, Any]
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, nargs="*", help="numbers of measurements, from 0")
    args = parser.parse_args()
    # A broker as it is served: its compiler done, and a heap that is not collected each second.
    with harness.servers(SERVING_JAVA_OPTIONS) as stack, pushed.target() as target:
        measure(stack.kafka.bootstrap, target, Load(100, 2_500), BROKER_WARM_SECONDS)
        for number, load in enumerate(LOADS):
            if not args.only or number in args.only:
                report(load, measure(stack.kafka.bootstrap, target, load, SECONDS))


def measure(bootstrap: str, target: pushed.Target, load: Load, seconds: int) -> Measured:
    target.begin_anew()
    topic, *others = [
        harness.topic_at(bootstrap, config={"message.timestamp.type": "LogAppendTime"})
        for _ in range(1 + len(BESIDE[load.beside]))
    ]
    wanted = [pushed.subscription(topic, topic, target.url("fast"), load.in_flight)]
    for other, kind in zip(others, BESIDE[load.beside], strict=True):
        of_kind = pushed.subscription(f"{kind}-{other}", other, target.url(kind), load.in_flight)
        wanted.append(of_kind)
    with pushed.pusher(bootstrap, wanted) as push:
        begin(bootstrap, target, topic)
        before = push.told()["cpu"]
        intended = produce(bootstrap, topic, others, load.per_s, seconds)
        told = pushed.until_came(target, len(intended), within=10)
        cpu = push.told()["cpu"] - before
        arrived = target.told(0, len(intended))["times"]
    return Measured(intended, appended(bootstrap, topic, len(intended)), arrived, told, cpu)


def begin(bootstrap: str, target: pushed.Target, topic: str) -> None:
    """Wait until one record came, and forget it: the group has its members by then."""
    records = pushed.Records(bootstrap, linger=0)
    records.produce(topic, 0, KEYS)
    records.flush()
    pushed.until_came(target, 1, within=30)
    target.begin_anew()


def report(load: Load, found: Measured) -> None:
    first = int(WARM_SECONDS * load.per_s)
    came = [number for number in range(first, len(found.arrived)) if found.arrived[number]]
    added = harness.percentiles([found.arrived[each] - found.intended[each] for each in came])
    visible = harness.percentiles([found.arrived[each] - found.visible[each] for each in came])
    harness.emit(
        "push_latency",
        **load._asdict(),
        added_p50_ms=added["p50_ms"],
        added_p99_ms=added["p99_ms"],
        visible_p50_ms=visible["p50_ms"],
        visible_p99_ms=visible["p99_ms"],
        undelivered=len(found.intended) - found.told["fast"],
        cpu_us_per_delivery=round(found.cpu / found.told["fast"] * 1e6, 1),
        requests=found.told["requests"],
    )


def produce(
    bootstrap: str, topic: str, others: Sequence[str], per_s: int, seconds: int
) -> list[float]:
    """Produce at a pace; return when each record should have been produced."""
    records = pushed.Records(bootstrap, linger=0)
    began = time.monotonic() + 1.0
    intended = [began + number / per_s for number in range(seconds * per_s)]
    tick = began
    for number, due in enumerate(intended):
        if due > tick:
            # Never ahead of a record's own time, and not later for having been late before.
            tick = max(tick + TICK_SECONDS, due)
            if (early := tick - time.monotonic()) > 0:
                time.sleep(early)
        records.produce(topic, number, KEYS)
        if number % 10 == 0:
            for other in others:
                records.produce(other, number, KEYS)
    records.flush()
    return intended


def appended(bootstrap: str, topic: str, records: int) -> list[float]:
    """Return when the broker had each record, by its own clock in milliseconds."""
    wall = time.time() - time.monotonic()
    times = [0.0] * records
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(harness.PARTITIONS)])
        left = records + 1  # the one of the beginning, which has the number of the first
        while left:
            messages = consumer.consume(min(left, 1_000), 10)
            if not messages:
                msg = f"{left} records of {topic} cannot be read"
                raise RuntimeError(msg)
            for message in messages:
                number = int((message.value() or b"")[:10])
                times[number] = (message.timestamp()[1] or 0) / 1000 - wall
            left -= len(messages)
    finally:
        consumer.close()
    return times


if __name__ == "__main__":
    main()
