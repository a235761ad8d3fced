"""
A storm of copies and slow handlers: `make bench-dedup_burst`.

Under this load, batches of 500 records of a key, 250 ms each, once kept a consumer from polling
until its group expelled it. There are 32 partitions, and 500,000 events an hour of skewed keys.
Each event has as many copies as the rounds it was doubled in, and now and then one has 500. The
expected outcome is no rebalance, no failed commit, and a steady lag.
"""

import argparse
import random
import threading
import time
from collections import Counter
from itertools import accumulate

from confluent_kafka import Producer

from benchmarks import harness
from dedup.consumer import Consumer
from dedup.settings.consumer import ConsumerSettings
from outbox.envelope import encode
from outbox.event import Event

PARTITIONS = 32
PER_SECOND = 500_000 / 3600
KEYS = 1_000
WORK_SECONDS = 0.25
BURST = 500
BURST_EVERY_SECONDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("--bootstrap", help="a Kafka that runs already")
    args = parser.parse_args()
    if args.bootstrap:
        measure(args.bootstrap, args.seconds)
        return
    with harness.servers() as stack:
        measure(stack.kafka.bootstrap, args.seconds)


def measure(bootstrap: str, seconds: int) -> None:
    topic = harness.topic_at(bootstrap, partitions=PARTITIONS)
    handled: Counter[str] = Counter()
    pause = threading.Event()

    def handle(event: Event) -> None:
        handled[event.id] += 1
        pause.wait(WORK_SECONDS)

    consumer = Consumer(
        ConsumerSettings(
            topics=(topic,),
            group=topic,
            kafka={"bootstrap.servers": bootstrap},
            concurrency=64,
            policy="exact",
        ),
        handle,
    )
    consuming = threading.Thread(target=consumer.run)
    consuming.start()
    harness.until(lambda: consumer.health.ready().ok, within=30, what="a member of the group")
    sent: list[int] = []
    sending = threading.Thread(target=send, args=(bootstrap, topic, seconds, sent))
    began = time.monotonic()
    sending.start()
    lags: list[tuple[float, float]] = []
    while sending.is_alive():
        sending.join(1)
        lags.append((number(consumer, "lag_rows"), number(consumer, "lag_seconds", most=True)))
    harness.until(
        lambda: number(consumer, "records_total") >= sent[0],
        within=30,
        what="all records completed",
    )
    took = time.monotonic() - began
    failed = number(consumer, "commits_total", outcome="failed")
    rebalances = number(consumer, "rebalances_total") - 1
    consumer.stop()
    consuming.join(30)
    half = len(lags) // 2
    harness.emit(
        "dedup_burst",
        partitions=PARTITIONS,
        work_ms=round(WORK_SECONDS * 1000),
        events=sent[1],
        records=sent[0],
        handled=sum(handled.values()),
        skipped=round(number(consumer, "records_skipped_total")),
        lost=sent[1] - len(handled),
        rebalances=round(rebalances),
        failed_commits=round(failed),
        lag_rows_first_half=round(max(rows for rows, _ in lags[:half])),
        lag_rows_second_half=round(max(rows for rows, _ in lags[half:])),
        lag_seconds=round(max(age for _, age in lags), 1),
        seconds=round(took, 1),
    )


def number(consumer: Consumer, name: str, *, most: bool = False, **labels: str) -> float:
    """Return the sum, or the maximum, of a metric's samples."""
    samples = [
        sample.value
        for metric in consumer.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"dovecote_consumer_{name}" and labels.items() <= sample.labels.items()
    ]
    return max(samples, default=0) if most else sum(samples)


def send(bootstrap: str, topic: str, seconds: int, sent: list[int]) -> None:
    """Send events at their rate, in copies; store the numbers of records and events in `sent`."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    chance = random.Random(1)  # noqa: S311  # a load, not a secret
    weights = list(accumulate(rank**-0.5 for rank in range(1, KEYS + 1)))
    records = events = 0
    began = time.monotonic()
    bursts = 0
    while (now := time.monotonic() - began) < seconds:
        while events < now * PER_SECOND:
            (number_,) = chance.choices(range(KEYS), cum_weights=weights)
            copies = 2 ** chance.randrange(4)
            if now > bursts * BURST_EVERY_SECONDS:
                copies, bursts = BURST, bursts + 1
            event = Event(topic=topic, key=f"key-{number_}", type="Doubled", value={"n": events})
            key, value, headers = encode(event)
            for _ in range(copies):
                producer.produce(topic, value, key, headers=headers)  # type: ignore[arg-type]  # invariant list, only read
            records, events = records + copies, events + 1
        producer.poll(0.02)
    producer.flush(30)
    sent += [records, events]


if __name__ == "__main__":
    main()
