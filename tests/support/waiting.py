"""Wait in tests, up to a deadline, for something to become true."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_POLL_SECONDS = 0.02
_MOST_SECONDS = 1.0
# CI's machine is slower than ours, and the load of the last minute is behind that of a moment.
_SLOWER = 3.0

T = TypeVar("T")


def until(predicate: Callable[[], T], *, within: float, what: str, promised: bool = False) -> T:
    """
    Return the first true value of `predicate`; fail, naming `what`, after `within` seconds.

    The seconds are what a quiet machine needs at most, and the wait is `patient` with others. If
    they are `promised` to users, no machine gets more.

    It spends at most half of the time asking: otherwise, asking a process would take the processor
    from the work that we wait for.
    """
    began = time.monotonic()
    pause = threading.Event()
    while True:
        asked = time.monotonic()
        if value := predicate():
            return value
        answered = time.monotonic()
        if answered - began > (within if promised else patient(within)):
            msg = f"not within {within} s: {what} (last: {value!r})"
            raise AssertionError(msg)
        pause.wait(min(max(_POLL_SECONDS, answered - asked), _MOST_SECONDS))


def patient(seconds: float) -> float:
    """
    Return how long to wait at most for what takes `seconds` on a quiet machine.

    It is for every deadline of a test that is no promise to users: of processes, threads, futures
    and requests. A longer one costs nothing, because only a test that fails reaches it.
    """
    return seconds * max(_SLOWER, busyness())


def busyness() -> float:
    """Return how many processes want each processor, as the last minute shows; at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def consume(
    bootstrap: str,
    topic: str,
    *,
    isolation: str = "read_committed",
    within: float = 30.0,
    start: Mapping[int, int] | None = None,
) -> list[Message]:
    """
    Return all records of `topic`, up to the present end of each partition for a reader.

    They are in order within a partition. `start` gives the first offset of a partition; by
    default, the partition's first.
    """
    found: list[Message] = []
    deadline = time.monotonic() + patient(within)
    with reader(bootstrap, isolation=isolation) as consumer:
        metadata = consumer.list_topics(topic, timeout=patient(within)).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        first = start or {}
        consumer.assign(
            [TopicPartition(topic, p, first.get(p, 0)) for p in metadata.partitions],
        )
        open_partitions = set(metadata.partitions)
        while open_partitions:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            if message is None:
                msg = f"not within {within} s: the end of partitions {open_partitions} of {topic}"
                raise AssertionError(msg)
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
    return found


# Errors that a consumer reports while a broker is away, and gets over by itself.
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}


@contextmanager
def reader(bootstrap: str, *, isolation: str = "read_committed") -> Iterator[Consumer]:
    """Yield a consumer without a group that reports the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",  # required by the client, never used
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # The broker reports the end only after it has waited this long for more.
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()
