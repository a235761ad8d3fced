"""
Throughput of the consumer: `make bench-dedup_consumer`.

Topics are filled before the consumer starts, in its own process. The clock runs from the first
handled record to the last, so start-up is left out. The handler only checks that each key's
records come in order and each once, and sleeps. The ceiling is the rate of the lanes if nothing
else took time: lanes / work, or as much as the busiest key allows.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks import harness
from outbox.envelope import encode
from outbox.event import Event

VALUE_BYTES = 100
LONGEST_SECONDS = 100
CHILD = "from benchmarks.consuming import main; main()"


class Load(NamedTuple):
    """One measurement."""

    work_ms: float
    lanes: int
    records: int
    handler: str = "sync"
    keys: int = 1_000
    distribution: str = "uniform"


LOADS = [
    Load(0, 100, 600_000),
    Load(0, 100, 600_000, distribution="zipf"),
    Load(1, 100, 300_000),
    Load(10, 100, 100_000),
    Load(10, 100, 20_000, distribution="zipf"),
    Load(0, 1_000, 600_000, handler="async"),
    Load(10, 1_000, 400_000, handler="async"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of measurements, from 0")
    parser.add_argument("--bootstrap", help="a Kafka that runs already")
    args = parser.parse_args()
    loads = [load for n, load in enumerate(LOADS) if not args.only or n in args.only]
    if args.bootstrap:
        for load in loads:
            measure(args.bootstrap, harness.topic_at(args.bootstrap), load)
        return
    with harness.servers() as stack:
        for load in loads:
            measure(stack.kafka.bootstrap, harness.topic(stack), load)


def measure(bootstrap: str, topic: str, load: Load) -> None:
    per_key = fill(bootstrap, topic, load)
    found = consumed(CHILD, bootstrap, topic, load, group=topic)
    rate = found["handled"] / found["seconds"]
    ceiling = None
    if load.work_ms:
        seconds = load.work_ms / 1000
        ceiling = min(load.lanes / seconds, load.records / (max(per_key.values()) * seconds))
    harness.emit(
        "dedup_consumer",
        **load._asdict(),
        partitions=harness.PARTITIONS,
        records_per_s=round(rate),
        share_of_ceiling=None if ceiling is None else round(rate / ceiling, 3),
        order_violations=found["violations"],
        lost=load.records - found["handled"],
        duplicates=found["duplicates"],
        cpu_us_per_record=round(found["cpu"] / load.records * 1e6, 1),
        resident_mb=round(found["peak_bytes"] / 1e6),
    )


def consumed(
    code: str, bootstrap: str, topic: str, load: Load, *, group: str
) -> Mapping[str, float]:
    """Return what a process that runs `code` says of the topic that it has consumed."""
    wanted = {
        "work_ms": load.work_ms,
        "total": load.records,
        "handler": load.handler,
        "within": LONGEST_SECONDS,
        "settings": {
            "topics": [topic],
            "group": group,
            "value": "raw",
            "concurrency": load.lanes,
            "kafka": {"bootstrap.servers": bootstrap},
        },
    }
    command = [sys.executable, "-c", code, json.dumps(wanted)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Mapping[str, float] = json.loads(done.stdout)
    return found


def fill(bootstrap: str, topic: str, load: Load) -> Counter[int]:
    """Fill the topic with numbered records of each key; return the number for each key."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    event = Event(topic=topic, type="Benched", source="/bench", value=b"x" * VALUE_BYTES)
    _, _, headers = encode(event)
    per_key: Counter[int] = Counter()
    for n, key in enumerate(keys(load)):
        value = b"%010d" % per_key[key] + b"x" * (VALUE_BYTES - 10)
        per_key[key] += 1
        own = [("ce_id", b"%032d" % n), *(h for h in headers if h[0] != "ce_id")]
        producer.produce(topic, value, b"key-%d" % key, headers=own)  # type: ignore[arg-type]  # invariant list, only read
        if n % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        sys.exit("the topic could not be filled within a minute")
    return per_key


def keys(load: Load) -> list[int]:
    """Return the keys of all records, the same in each run."""
    chance = random.Random(1)  # noqa: S311  # a load, not a secret
    weights = None
    if load.distribution == "zipf":
        weights = list(accumulate(1 / rank for rank in range(1, load.keys + 1)))
    return chance.choices(range(load.keys), cum_weights=weights, k=load.records)


if __name__ == "__main__":
    main()
