"""
A task of the Spark jobs reads, without Spark: `make bench-spark_reading`.

A worker reads and decides batches, as a task does that has all partitions of a lane, in a process
of its own. The benchmark measures records a second, processor time, the largest memory, and how
many bytes came from the broker for each byte of the records: what a consumer fetches beyond the
end of a range is thrown away. The last batch leaves as many records unread as it reads.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Producer

from benchmarks import harness
from benchmarks.harness import peak_bytes
from outbox.envelope import encode
from outbox.event import Event
from spark_jobs.policy import evaluation
from spark_jobs.policy.router import Router
from spark_jobs.query.settings import DedupSettings
from spark_jobs.rows.garbage import rarely_collecting
from spark_jobs.rows.records import Messages
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import fetch
from spark_jobs.source.offsets import Range

PER_KEY = 10
CHILD = "from benchmarks.spark_reading import child; child()"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--rows", type=int, default=200_000, help="in a batch")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--value-bytes", type=int, default=200)
    args = parser.parse_args()
    per_batch = max(1, args.rows // args.partitions)
    with harness.servers() as stack:
        topic = harness.topic_at(stack.kafka.bootstrap, partitions=args.partitions)
        size = _fill(stack.kafka.bootstrap, topic, args, per_batch * (args.batches + 1))
        wanted = {
            "bootstrap": stack.kafka.bootstrap,
            "topic": topic,
            "partitions": args.partitions,
            "per_batch": per_batch,
            "batches": args.batches,
        }
        command = [sys.executable, "-c", CHILD, json.dumps(wanted)]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    rows = per_batch * args.partitions
    harness.emit(
        "spark_reading",
        partitions=args.partitions,
        rows_per_batch=rows,
        batches=args.batches,
        value_bytes=args.value_bytes,
        rows_per_s=round(rows * args.batches / found["seconds"]),
        cpu_us_per_row=round(found["cpu"] / (rows * args.batches) * 1e6, 2),
        batch_mb=round(size * rows / 1e6, 1),
        peak_mb=round(found["peak_bytes"] / 1e6),
        idle_mb=round(found["idle_bytes"] / 1e6),
        fetched_over_used=round(found["fetched"] / (size * rows * args.batches), 2),
    )


def _fill(bootstrap: str, topic: str, args: argparse.Namespace, each: int) -> float:
    """Put `each` records on every partition; return the size of one on the wire, about."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "message.max.bytes": 2_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
        }
    )
    value = b"x" * args.value_bytes
    event = Event(topic=topic, type="Benched", source="/bench", value=value)
    _, _, headers = encode(event)
    given: Any = headers  # an invariant list in the client's types, only read
    for partition in range(args.partitions):
        for n in range(each):
            key = b"key-%d-%d" % (partition, n // PER_KEY)
            while True:
                try:
                    producer.produce(topic, value, key, partition, headers=given)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled within two minutes")
    own = sum(len(name) + len(text or b"") + 2 for name, text in headers)
    return len(value) + len(b"key-00-0000") + own + 10


def child() -> None:
    wanted = json.loads(sys.argv[1])
    fetched: dict[str, int] = {}

    def count(text: str) -> None:
        told = json.loads(text)
        fetched[told["name"]] = sum(each["rxbytes"] for each in told["brokers"].values())

    options: dict[str, Any] = {"statistics.interval.ms": 100, "stats_cb": count}
    config = SourceConfig(
        kafka={"bootstrap.servers": wanted["bootstrap"]},
        options=options,
        group="bench",
        topics=(wanted["topic"],),
    )
    operator, router = _decided_by(wanted)
    idle, began, cpu = peak_bytes(os.getpid()), time.monotonic(), _cpu()
    for batch in range(wanted["batches"]):
        first = batch * wanted["per_batch"]
        plan = [
            Range(wanted["topic"], partition, first, first + wanted["per_batch"])
            for partition in range(wanted["partitions"])
        ]
        with rarely_collecting():
            _decide(plan, config, operator, router)
    print(
        json.dumps(
            {
                "seconds": time.monotonic() - began,
                "cpu": _cpu() - cpu,
                "peak_bytes": peak_bytes(os.getpid()),
                "idle_bytes": idle,
                "fetched": sum(fetched.values()),
            }
        )
    )


def _decide(
    plan: Sequence[Range],
    config: SourceConfig,
    operator: evaluation.LoadedOperator,
    router: Router,
) -> None:
    rows = Messages([each for found in fetch(plan, config) for each in found.messages])
    wanted = sum(each.end - each.start for each in plan)
    counts = evaluation.evaluate(rows, operator, router).counts
    if counts.rows != wanted or counts.handled * PER_KEY < wanted:
        raise SystemExit(f"{counts} of {wanted} records")


def _decided_by(wanted: dict[str, Any]) -> tuple[evaluation.LoadedOperator, Router]:
    settings = DedupSettings.model_validate(
        {
            "kafka": {"bootstrap.servers": wanted["bootstrap"]},
            "source": {"topics": [wanted["topic"]]},
            "operator": {"type": "first_match", "value": "raw"},
            "output": {"topic": "o", "retry_topic": "r", "dead_letter_topic": "d"},
            "spark": {"query": "bench", "checkpoint": "-"},
        }
    )
    router = Router(topics=settings.topics(), backoff=settings.backoff(), now=0)
    return evaluation.load(settings.operator), router


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
