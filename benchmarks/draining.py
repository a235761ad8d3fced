"""Watch a process drain a backlog into a topic, from outside: at the broker, and in /proc."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from benchmarks import harness
from dovecote.devstack import Stack

# A topic that was made a moment ago has no leader.
_NOT_YET = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


class Drained(NamedTuple):
    """Results between the first commit seen at the broker and the last."""

    events_per_s: int
    events_per_cpu_second: int
    first_event_s: float
    """From the start of the process, or of its work, to the first event."""
    peak_mb: int

    def fields(self) -> dict[str, float]:
        """Return the results as one flat mapping."""
        return self._asdict()


def watch(
    stack: Stack,
    topic: str,
    pid: int,
    *,
    total: int,
    started: float,
    beside: Sequence[int] = (),
) -> Drained:
    """
    Wait until process `pid`, and those `beside` it, have made exactly `total` events visible.
    """
    pids = [pid, *beside]
    consumer = _consumer(stack)
    seen = [(started, 0.0, 0)]

    def drained() -> bool:
        end = _visible(consumer, topic)
        if end > seen[-1][2]:
            seen.append((time.monotonic(), sum(map(harness.cpu_seconds, pids)), end))
        return end >= total

    harness.until(drained, within=900, what=f"{total} events drained", every=0.02)
    memory = sum(map(harness.peak_bytes, pids))
    counted = _records(consumer, topic)
    consumer.close()
    if counted != total:
        raise SystemExit(f"{counted} records are visible instead of {total}")
    (began, cpu_before, first), (ended, cpu_after, last) = seen[1], seen[-1]
    return Drained(
        events_per_s=round((last - first) / (ended - began)),
        events_per_cpu_second=round((last - first) / (cpu_after - cpu_before)),
        first_event_s=round(began - started, 2),
        peak_mb=round(memory / 1e6),
    )


def until_published(stack: Stack, topic: str, count: int) -> None:
    """Wait until `count` events are visible."""
    consumer = _consumer(stack)
    harness.until(lambda: _visible(consumer, topic) >= count, within=30, what=f"{count} events")
    consumer.close()


def _consumer(stack: Stack) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )


def _visible(consumer: Consumer, topic: str) -> int:
    """Return how many offsets a `read_committed` consumer could read by now."""
    places = [TopicPartition(topic, p) for p in range(harness.PARTITIONS)]
    try:
        return sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)
    except KafkaException as error:
        if error.args[0].code() not in _NOT_YET:
            raise
        return 0


def _records(consumer: Consumer, topic: str) -> int:
    """Count the records that are there: offsets also count the transactions' markers."""
    consumer.assign([TopicPartition(topic, p, 0) for p in range(harness.PARTITIONS)])
    count = 0
    while messages := consumer.consume(50_000, timeout=1):
        count += sum(1 for message in messages if message.error() is None)
    return count
