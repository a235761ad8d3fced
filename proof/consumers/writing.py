"""Producers that write numbered events per key, plainly and in transactions that may abort."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from confluent_kafka import Producer

from outbox import envelope
from outbox.event import Event

KEYS = tuple(f"key-{number}" for number in range(48))
ABORTED = "aborted"

_ABORTED_SHARE = 0.2
_LARGEST = 20
_SECONDS = 30.0


class Writing:
    """Numbers the events of each key in each topic, and counts those that were committed."""

    def __init__(self, bootstrap: str, *, seed: int, pace: float) -> None:
        self._bootstrap, self._seed, self._pace = bootstrap, seed, pace
        self._enough = threading.Event()
        self.written: Counter[tuple[str, str]] = Counter()

    def plainly(self, topic: str) -> None:
        """Write to `topic` until told to stop."""
        chance = random.Random(self._seed)  # noqa: S311  # to be repeated, no secret
        producer = self._producer()
        while not self._enough.wait(chance.random() * 2 * self._pace):
            for key in chance.choices(KEYS, k=chance.randint(1, _LARGEST)):
                self._produce(producer, topic, key, str(self.written[topic, key]))
                self.written[topic, key] += 1
        _require_empty(producer)

    def in_transactions(self, topic: str) -> None:
        """Write to `topic` in transactions, and abort some, until told to stop."""
        chance = random.Random(self._seed + 1)  # noqa: S311  # to be repeated, no secret
        producer = self._producer("proof-consumers")
        while not self._enough.wait(chance.random() * 2 * self._pace):
            keys = chance.choices(KEYS, k=chance.randint(1, _LARGEST))
            producer.begin_transaction()
            if chance.random() < _ABORTED_SHARE:
                for key in keys:
                    self._produce(producer, topic, key, ABORTED)
                producer.flush(_SECONDS)
                producer.abort_transaction(_SECONDS)
                # librdkafka's producer must not be used again after an abort.
                producer = self._producer("proof-consumers")
                continue
            numbers = Counter[str]()
            for key in keys:
                self._produce(producer, topic, key, str(self.written[topic, key] + numbers[key]))
                numbers[key] += 1
            producer.commit_transaction(_SECONDS)
            for key, number in numbers.items():
                self.written[topic, key] += number

    def stop(self) -> None:
        self._enough.set()

    def _producer(self, transactional_id: str | None = None) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                **({"transactional.id": transactional_id} if transactional_id else {}),
            }
        )
        if transactional_id:
            producer.init_transactions(_SECONDS)
        return producer

    def _produce(self, producer: Producer, topic: str, key: str, value: str) -> None:
        # The topics have the same ids, of two sources.
        event = Event(
            topic=topic,
            key=key,
            type="Counted",
            source=f"/proof/{topic}",
            value=value,
            id=f"{key}/{value}",
        )
        key_, value_, headers = envelope.encode(event)
        producer.produce(topic, value_, key_, headers=headers)  # type: ignore[arg-type]  # lists are invariant
        producer.poll(0)


@contextmanager
def at_work(writing: Writing, plain: str, transactional: str) -> Iterator[None]:
    """Keep both producers at work; afterwards they have stopped, and neither has failed."""
    with ThreadPoolExecutor(2, thread_name_prefix="writer") as pool:
        tasks = [
            pool.submit(writing.plainly, plain),
            pool.submit(writing.in_transactions, transactional),
        ]
        try:
            yield
        finally:
            writing.stop()
        for task in tasks:
            task.result(60)


def _require_empty(producer: Producer) -> None:
    left = producer.flush(_SECONDS)
    if left:
        msg = f"the broker has not taken {left} records"
        raise TimeoutError(msg)
