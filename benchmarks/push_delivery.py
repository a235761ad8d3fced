"""
Requests a second of one `push` process: `make bench-push_delivery`.

Topics are filled before it starts; broker, target and `push` share the machine. The clock runs at
the target from the first request to the last. Each request is a signed CloudEvent with 110 bytes
of body, and requests of one key are in order. `beside` adds a slow, a failing and a silent
endpoint.
"""

import argparse
from typing import Any, NamedTuple

from benchmarks import harness, pushed

KEYS = 5_000
LONGEST_SECONDS = 45


class Load(NamedTuple):
    """One measurement."""

    in_flight: int
    endpoint: str
    records: int
    beside: bool = False


LOADS = [
    Load(10, "fast", 40_000),
    Load(100, "fast", 60_000),
    Load(1_000, "fast", 60_000),
    Load(1_000, "slow", 40_000),
    Load(100, "fast", 60_000, beside=True),
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
    fill(bootstrap, topic, load.records)
    wanted = [
        pushed.subscription(topic, topic, target.url(load.endpoint), load.in_flight),
        *(others(bootstrap, target) if load.beside else []),
    ]
    with pushed.pusher(bootstrap, wanted) as push:
        told = pushed.until_came(target, load.records, within=LONGEST_SECONDS)
        cpu = push.told()["cpu"]
    harness.emit(
        "push_delivery",
        **load._asdict(),
        deliveries_per_s=round(told["fast"] / told["seconds"]),
        undelivered=load.records - told["fast"],
        repeated=told["repeated"],
        cpu_us_per_delivery=round(cpu / told["fast"] * 1e6, 1),
        requests=told["requests"],
    )


def fill(bootstrap: str, topic: str, records: int) -> None:
    producing = pushed.Records(bootstrap, linger=20)
    for number in range(records):
        producing.produce(topic, number, KEYS)
    producing.flush()


def others(bootstrap: str, target: pushed.Target) -> list[dict[str, Any]]:
    """Return subscriptions of failing endpoints, each with a full topic of its own."""
    found = []
    for kind in ("failing", "black-hole"):
        topic = harness.topic_at(bootstrap)
        fill(bootstrap, topic, 5_000)
        found.append(pushed.subscription(f"{kind}-{topic}", topic, target.url(kind), 100))
    return found


if __name__ == "__main__":
    main()
