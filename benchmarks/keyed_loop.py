"""
The consumer that one writes by hand, as a process of its own: the peer of `consumer_peers`.

Each of its threads has a queue, and a key is always the same thread's; it commits the contiguous
prefix once a second, and has 5,000 records in memory at most. It delivers at least once, and in
order per key. It has no retries, no dead letters, no metrics, and does nothing about a rebalance;
keys of one thread wait for each other.
"""

import json
import queue
import sys
import threading
import time
from collections import deque

from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.consuming import Handler

_MOST_RECORDS = 5_000
_BATCH = 500
_COMMIT_SECONDS = 1.0


class Ledger:
    """The offsets of a partition that were polled and are not concluded."""

    def __init__(self) -> None:
        self._open: deque[list[int]] = deque()

    def taken(self, offset: int) -> list[int]:
        """Return the entry of an offset: its second number is set to 1 once it is concluded."""
        entry = [offset, 0]
        self._open.append(entry)
        return entry

    def committable(self) -> int | None:
        """Return the offset to commit; None: it is the one of the call before."""
        found = None
        while self._open and self._open[0][1]:
            found = self._open.popleft()[0] + 1
        return found


class Loop:
    """The thread that polls, and the threads that handle."""

    def __init__(self, consumer: Consumer, handler: Handler, topic: str, threads: int) -> None:
        self._consumer, self._handler, self._topic = consumer, handler, topic
        self._ledgers: dict[int, Ledger] = {}
        self._queues: list[queue.SimpleQueue[tuple[Message, list[int]]]] = [
            queue.SimpleQueue() for _ in range(threads)
        ]
        for each in self._queues:
            threading.Thread(target=self._work, args=(each,), daemon=True).start()

    def run(self, within: float) -> None:
        """Poll until all records are handled, or for at most `within` seconds."""
        handler, consumer, taken = self._handler, self._consumer, 0
        committed = time.monotonic()
        deadline = committed + within
        while not handler.done.is_set() and time.monotonic() < deadline:
            if _MOST_RECORDS - (taken - handler.handled) < _BATCH:
                time.sleep(0.001)
                continue
            messages = consumer.consume(_BATCH, 0.1)
            self._put(messages)
            taken += len(messages)
            if time.monotonic() - committed > _COMMIT_SECONDS:
                self._commit(wait=False)
                committed = time.monotonic()
        # The last handlers have counted their records, and may not have concluded them.
        time.sleep(handler.work_seconds + 0.01)
        self._commit(wait=True)

    def _put(self, messages: list[Message]) -> None:
        ledgers, queues, count = self._ledgers, self._queues, len(self._queues)
        for message in messages:
            partition = message.partition()
            ledger = ledgers.get(partition) or ledgers.setdefault(partition, Ledger())  # type: ignore[arg-type]  # a message that was polled has one
            entry = ledger.taken(message.offset())  # type: ignore[arg-type]  # as above
            queues[hash(message.key()) % count].put((message, entry))

    def _work(self, mine: "queue.SimpleQueue[tuple[Message, list[int]]]") -> None:
        handler, work = self._handler, self._handler.work_seconds
        while True:
            message, entry = mine.get()
            handler.check(message.key(), message.value())
            if work:
                time.sleep(work)
            entry[1] = 1

    def _commit(self, *, wait: bool) -> None:
        offsets = [
            TopicPartition(self._topic, partition, at)
            for partition, ledger in self._ledgers.items()
            if (at := ledger.committable()) is not None
        ]
        if offsets and wait:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        elif offsets:
            self._consumer.commit(offsets=offsets, asynchronous=True)


def main() -> None:
    wanted = json.loads(sys.argv[1])
    handler = Handler(wanted["total"], wanted["work_ms"] / 1000)
    settings = wanted["settings"]
    (topic,) = settings["topics"]
    consumer = Consumer(
        {
            **settings["kafka"],
            "group.id": settings["group"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.subscribe([topic])
    Loop(consumer, handler, topic, settings["concurrency"]).run(wanted["within"])
    consumer.close()
    print(json.dumps(handler.told()))
