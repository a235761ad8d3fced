"""A bare loop of Kafka's client that reads numbered records, in its own process."""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness

_SILENT_SECONDS = 30.0


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    # The properties of `push` that affect when records come.
    consumer = Consumer(
        {
            "bootstrap.servers": wanted["bootstrap"],
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    topic = wanted["topic"]
    consumer.assign([TopicPartition(topic, each, 0) for each in range(harness.PARTITIONS)])
    _number(consumer)  # of the very first record
    print("ready", flush=True)
    times = [0.0] * wanted["records"]
    for _ in times:
        number = _number(consumer)
        times[number] = time.monotonic()
    print(json.dumps(times), flush=True)
    consumer.close()


def _number(consumer: Consumer) -> int:
    message = consumer.poll(_SILENT_SECONDS)
    if message is None:
        sys.exit(f"no record came for {_SILENT_SECONDS:g} s")
    if (error := message.error()) is not None:
        sys.exit(error.str())
    return int((message.value() or b"")[:10])
