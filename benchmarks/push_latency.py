"""
What `push` adds to a record's way: `make bench-push_latency`.

Records are produced at a steady pace, whatever becomes of them (an open loop), and each knows when
it should have been produced. What is measured is from then until its first request is at the
target: producing, the broker, and `push`. `beside` has endpoints besides that are slow, fail, or
never answer, with records of their own at a tenth of the pace each.
"""

import argparse
import time
from typing import Any, NamedTuple

from benchmarks import harness, pushed

KEYS = 5_000
SECONDS = 12
WARM_SECONDS = 2
TROUBLES = ("slow-too", "failing", "black-hole")


class Load(NamedTuple):
    """One measurement."""

    in_flight: int
    per_s: int
    beside: bool = False


LOADS = [
    Load(10, 2_500),
    Load(100, 2_500),
    Load(1_000, 2_500),
    Load(100, 1_000),
    Load(100, 1_000, beside=True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of measurements, from 0")
    args = parser.parse_args()
    with harness.servers() as stack, pushed.target() as target:
        for number, load in enumerate(LOADS):
            if not args.only or number in args.only:
                measure(stack.kafka.bootstrap, target, load)


def measure(bootstrap: str, target: pushed.Target, load: Load) -> None:
    target.begin_anew()
    topic = harness.topic_at(bootstrap)
    wanted = [pushed.subscription(topic, topic, target.url("fast"), load.in_flight)]
    troubles = []
    for kind in TROUBLES if load.beside else ():
        of_kind = harness.topic_at(bootstrap)
        troubles.append(of_kind)
        wanted.append(
            pushed.subscription(f"{kind}-{of_kind}", of_kind, target.url(kind), load.in_flight)
        )
    with pushed.pusher(bootstrap, wanted) as push:
        begin(bootstrap, target, topic)
        intended = produce(bootstrap, topic, troubles, load.per_s)
        told = pushed.until_came(target, len(intended), within=10)
        cpu = push.told()["cpu"]
        arrived = target.told(0, len(intended))["times"]
    report(load, intended, arrived, {**told, "cpu": cpu})


def begin(bootstrap: str, target: pushed.Target, topic: str) -> None:
    """Wait until one record came, and forget it: the group has its members by then."""
    records = pushed.Records(bootstrap, linger=0)
    records.produce(topic, 0, KEYS)
    records.flush()
    pushed.until_came(target, 1, within=30)
    target.begin_anew()


def report(load: Load, intended: list[float], arrived: list[float], told: dict[str, Any]) -> None:
    first = int(WARM_SECONDS * load.per_s)
    added = [
        came - meant for came, meant in zip(arrived[first:], intended[first:], strict=True) if came
    ]
    found = harness.percentiles(added)
    harness.emit(
        "push_latency",
        **load._asdict(),
        added_p50_ms=found["p50_ms"],
        added_p99_ms=found["p99_ms"],
        undelivered=len(intended) - told["fast"],
        cpu_us_per_delivery=round(told["cpu"] / told["fast"] * 1e6, 1),
        requests=told["requests"],
    )


def produce(bootstrap: str, topic: str, troubles: list[str], per_s: int) -> list[float]:
    """Produce at a pace; return when each record should have been produced."""
    records = pushed.Records(bootstrap, linger=0)
    began = time.monotonic() + 1.0
    intended = [began + number / per_s for number in range(SECONDS * per_s)]
    for number, due in enumerate(intended):
        if (early := due - time.monotonic()) > 0:
            time.sleep(early)
        records.produce(topic, number, KEYS)
        if number % 10 == 0:
            for trouble in troubles:
                records.produce(trouble, number, KEYS)
    records.flush()
    return intended


if __name__ == "__main__":
    main()
