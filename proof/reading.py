"""Read topics like a `read_committed` consumer."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from proof.count import Seen

_CHUNK = 10_000
# Errors that a consumer reports while a broker comes back, and gets over by itself.
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # noqa: SLF001  # librdkafka's names


class Reading:
    """All committed records of topics, from their beginning to their present end."""

    def __init__(
        self, bootstrap: str, topics: Sequence[str], since: Mapping[int, int] | None = None
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "proof",  # required by the client, never used
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        known = self._consumer.list_topics(timeout=30).topics
        self._partitions = {
            (topic, number)
            for topic in topics
            if topic in known
            for number in known[topic].partitions
        }
        # The offset at which each partition is read, if it is not the first one.
        self._first = since or {}
        self._consumer.assign(
            [
                TopicPartition(topic, number, self._first.get(number, 0))
                for topic, number in sorted(self._partitions)
            ]
        )
        self.seen: list[Seen] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def go_on(self, within: float) -> None:
        """Read for `within` seconds."""
        for message in self._consumer.consume(_CHUNK, within):
            self._take(message.error(), message)

    def finish(self) -> None:
        """
        Read up to the end of each partition.

        Raises:
            KafkaException: the broker cannot be read.
        """
        # The end of a partition is reported once, and again only after a seek.
        for place in self._consumer.position(self._consumer.assignment()):
            place.offset = max(place.offset, self._first.get(place.partition, 0))
            self._consumer.seek(place)
        rest = set(self._partitions)
        while rest:
            for message in self._consumer.consume(_CHUNK, 1.0):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    rest.discard((message.topic() or "", message.partition() or 0))
                self._take(error, message)

    def _take(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            if error.code() not in _PASSING | {KafkaError._PARTITION_EOF}:  # noqa: SLF001  # librdkafka's name
                raise KafkaException(error)
            return
        key, value, (_, at) = message.key(), message.value(), message.timestamp()
        if isinstance(key, bytes) and isinstance(value, bytes):
            number = json.loads(value)
            if isinstance(number, list):
                number = number[0]
            self.seen.append(Seen(sys.intern(key.decode()), int(number), at))
        else:
            # Nobody committed this as an event: a surplus record.
            self.seen.append(Seen(repr(key), -1, at))
