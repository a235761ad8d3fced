"""Read a topic as a `read_committed` consumer does."""

from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from proof.count import Seen

_CHUNK = 10_000
# What a consumer says while a broker comes back, and gets over by itself.
_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}  # noqa: SLF001  # librdkafka's names


class Reading:
    """All committed records of a topic, from its beginning to where they end at the moment."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "proof",  # asked for by the client, used for nothing
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        self._partitions = set(partitions)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        self.seen: list[Seen] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def go_on(self, within: float) -> None:
        """Read what there is for `within` seconds."""
        for message in self._consumer.consume(_CHUNK, within):
            self._take(message.error(), message.key(), message.value())

    def finish(self) -> None:
        """
        Read up to the end of each partition.

        Raises:
            KafkaException: the broker cannot be read.
        """
        # An end that was reached is told once, and again after a seek alone.
        for place in self._consumer.position(self._consumer.assignment()):
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)
        rest = set(self._partitions)
        while rest:
            for message in self._consumer.consume(_CHUNK, 1.0):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    rest.discard(message.partition())
                self._take(error, message.key(), message.value())

    def _take(self, error: KafkaError | None, key: object, value: object) -> None:
        if error is None and isinstance(key, bytes) and isinstance(value, bytes):
            self.seen.append(Seen(key.decode(), int(value)))
        elif error is None:
            self.seen.append(Seen(repr(key), -1))  # nobody committed it: a surplus record
        elif error.code() not in _PASSING | {KafkaError._PARTITION_EOF}:  # noqa: SLF001  # librdkafka's name
            raise KafkaException(error)
