"""
The latency that `push` adds to a record: `make bench-push_latency`.

Records are produced at a steady pace (an open loop), and each knows when it should have been
produced. The figure `added` runs from then until its first request is at the target: producing,
the broker, and `push`. The figure `visible` runs from when the broker had it, to the millisecond
below. The figure `floor` is the same for a bare loop of Kafka's client in place of `push`.

There may also be other endpoints with their own records, at a tenth of the pace each. Compared
loads are measured in turn, several times, each time with their own processes and topics.
Percentiles are medians of these measurements, and ratios are medians of the ratios within a round.
The broker is warm: its compiler, which takes a core for about a minute, is not part of the
measurement.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal, NamedTuple, TypeAlias

from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness, pushed
from benchmarks.warming import KAFKA_JAVA, warm

KEYS = 5_000
SECONDS = 7
WARM_SECONDS = 2.5
"""The uncounted start: the broker's coordinator takes a core for 50 to 60 ms, once in a group."""
WARMING_PER_S = 5_000
WARMING_SECONDS = 8
ROUNDS = 5
TICK_SECONDS = 0.00101
"""
Records are produced a tick at a time, as a busy service does: none before its own time.

A tick is a hundredth longer than a millisecond, because the broker's time is in whole
milliseconds. Otherwise all records of a round would have the same fraction of one, and the next
round another.
"""

BESIDE = {
    "": (),
    "healthy": ("also-fast",),
    "black-hole": ("black-hole",),
    "well": ("also-fast",) * 3,
    "trouble": ("slow-too", "failing", "black-hole"),
}


class Load(NamedTuple):
    """One thing to measure."""

    in_flight: int
    per_s: int
    beside: Literal["", "healthy", "black-hole", "well", "trouble"] = ""


COMPARED: Sequence[Sequence[Load]] = [
    [Load(10, 2_500)],
    [Load(100, 2_500)],
    [Load(1_000, 2_500)],
    [Load(100, 1_000), Load(100, 1_000, "healthy"), Load(100, 1_000, "black-hole")],
    [Load(100, 1_000, "well"), Load(100, 1_000, "trouble")],
]
"""Each is compared with the first in its row."""


class Measured(NamedTuple):
    """The measurement of one load in one round, on the machine's monotonic clock."""

    intended: Sequence[float]
    visible: Sequence[float]
    arrived: Sequence[float]
    """0: it did not arrive."""

    told: dict[str, Any]
    cpu: float


Percentiles: TypeAlias = Mapping[str, float]
"""By their names."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, nargs="*", help="numbers of comparisons, from 0")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args()
    with harness.servers(KAFKA_JAVA) as stack, pushed.target("first") as target:
        warm(stack.kafka, lambda: floor(stack.kafka.bootstrap, WARMING_PER_S, WARMING_SECONDS))
        # The broker also has to compile the code that only `push` calls.
        measure(stack.kafka.bootstrap, target, Load(100, 2_500), WARMING_SECONDS)
        for number, loads in enumerate(COMPARED):
            if not args.only or number in args.only:
                compare(stack.kafka.bootstrap, target, loads, args.rounds)


def compare(bootstrap: str, target: pushed.Target, loads: Sequence[Load], rounds: int) -> None:
    """Measure these in turn, and the floor before each turn; report them."""
    floors: list[Percentiles] = []
    found: defaultdict[Load, list[Measured]] = defaultdict(list)
    for _ in range(rounds):
        floors.append(percentiles(floor(bootstrap, loads[0].per_s, SECONDS), loads[0].per_s))
        for load in loads:
            found[load].append(measure(bootstrap, target, load, SECONDS))
    for load in loads:
        report(load, found[load], medians(floors), found[loads[0]])


def measure(bootstrap: str, target: pushed.Target, load: Load, seconds: int) -> Measured:
    target.begin_anew()
    topic, *others = [timed_topic(bootstrap) for _ in range(1 + len(BESIDE[load.beside]))]
    wanted = [pushed.subscription(topic, topic, target.url("fast"), load.in_flight)]
    for other, kind in zip(others, BESIDE[load.beside], strict=True):
        of_kind = pushed.subscription(f"{kind}-{other}", other, target.url(kind), load.in_flight)
        wanted.append(of_kind)
    with pushed.pusher(bootstrap, wanted) as push:
        begin(bootstrap, topic)
        pushed.until_came(target, 1, within=30)
        target.begin_anew()
        before = push.told()["cpu"]
        intended = produce(bootstrap, topic, others, load.per_s, seconds)
        told = pushed.until_came(target, len(intended), within=10)
        cpu = push.told()["cpu"] - before
        arrived = target.told(0, len(intended))["times"]
    return Measured(intended, appended(bootstrap, topic, len(intended)), arrived, told, cpu)


def floor(bootstrap: str, per_s: int, seconds: int) -> Measured:
    """Measure a bare loop of Kafka's client."""
    topic = timed_topic(bootstrap)
    with pushed.reader(bootstrap, topic, per_s * seconds) as reader:
        begin(bootstrap, topic)
        reader.begun()
        intended = produce(bootstrap, topic, (), per_s, seconds)
        arrived = reader.times()
    return Measured(intended, appended(bootstrap, topic, len(intended)), arrived, {}, 0.0)


def timed_topic(bootstrap: str) -> str:
    """Make a topic whose records have the time at which the broker got them."""
    return harness.topic_at(bootstrap, config={"message.timestamp.type": "LogAppendTime"})


def begin(bootstrap: str, topic: str) -> None:
    """Produce the record before the others: a reader that has it is ready."""
    records = pushed.Records(bootstrap, linger=0)
    records.produce(topic, 0, KEYS)
    records.flush()


def percentiles(found: Measured, per_s: int) -> Percentiles:
    """Return p50 and p99 since a record should have been produced, and since it was visible."""
    first = int(WARM_SECONDS * per_s)
    came = [number for number in range(first, len(found.arrived)) if found.arrived[number]]
    told: dict[str, float] = {}
    for name, since in ("added", found.intended), ("visible", found.visible):
        each = harness.percentiles([found.arrived[number] - since[number] for number in came])
        told |= {f"{name}_p50_ms": each["p50_ms"], f"{name}_p99_ms": each["p99_ms"]}
    return told


def medians(several: Sequence[Percentiles]) -> Percentiles:
    return {name: round(median(each[name] for each in several), 2) for name in several[0]}


def ratio(found: Sequence[Percentiles], first: Sequence[Percentiles], name: str) -> float:
    """Return the median over rounds: within a round, the machine is much the same for both."""
    of_rounds = zip(found, first, strict=True)
    return round(median(each[name] / other[name] for each, other in of_rounds), 2)


def report(
    load: Load, found: Sequence[Measured], least: Percentiles, first: Sequence[Measured]
) -> None:
    rounds = [percentiles(each, load.per_s) for each in found]
    others = [percentiles(each, load.per_s) for each in first]
    delivered = sum(each.told["fast"] for each in found)
    harness.emit(
        "push_latency",
        **load._asdict(),
        **medians(rounds),
        **{f"floor_{name}": value for name, value in least.items()},
        added_p99_ratio=ratio(rounds, others, "added_p99_ms"),
        visible_p99_ratio=ratio(rounds, others, "visible_p99_ms"),
        rounds=len(found),
        undelivered=sum(len(each.intended) for each in found) - delivered,
        cpu_us_per_delivery=round(sum(each.cpu for each in found) / delivered * 1e6, 1),
        requests=found[-1].told["requests"],
    )


def produce(
    bootstrap: str, topic: str, others: Sequence[str], per_s: int, seconds: int
) -> list[float]:
    """Produce at a pace; return when each record should have been produced."""
    with pushed.first():  # including the producer's threads, which are started here
        return paced(pushed.Records(bootstrap, linger=0), topic, others, per_s, seconds)


def paced(
    records: pushed.Records, topic: str, others: Sequence[str], per_s: int, seconds: int
) -> list[float]:
    """As `produce`, with an existing producer."""
    began = time.monotonic() + 1.0
    intended = [began + number / per_s for number in range(seconds * per_s)]
    tick = began
    for number, due in enumerate(intended):
        if due > tick:
            # Never ahead of a record's own time, and no later because an earlier tick was late.
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
        left = records + 1  # the record before the others, which has the first one's number
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
