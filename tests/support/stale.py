"""Consumers that get answers from a broker which was cut off: it has only its old log."""

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.support.waiting import patient


class Cut:
    """
    Makes consumers; where it `answers`, they see nothing that came after the broker was cut `off`.

    The log of a broker that no longer leads is a beginning of the leader's log. So these consumers
    are real ones that hide the rest.
    """

    def __init__(self) -> None:
        self._left = 0
        self._ends: dict[int, int] = {}
        self.asked = 0
        """How often such a broker was asked."""

    def off(self, kafka: Mapping[str, str], topic: str) -> None:
        """Remember the present end of each partition."""
        consumer = Consumer({**kafka, "group.id": "stale"})
        try:
            for number in (
                consumer.list_topics(topic, timeout=patient(30)).topics[topic].partitions
            ):
                place = TopicPartition(topic, number)
                _, self._ends[number] = consumer.get_watermark_offsets(place, timeout=patient(30))
        finally:
            consumer.close()

    def answers(self, *, times: int) -> None:
        """Let the next `times` consumers find each partition as it was."""
        self._left = times

    def consumer(self, config: Mapping[str, Any], **more: Any) -> "Consumer | StaleConsumer":
        """Return a consumer, like `Consumer` does."""
        if self._left <= 0:
            return Consumer(dict(config), **more)
        self._left -= 1
        self.asked += 1
        return StaleConsumer(config, self._ends)


class StaleConsumer:
    """A consumer of a broker whose log ends at `ends`."""

    def __init__(self, config: Mapping[str, Any], ends: Mapping[int, int]) -> None:
        self._consumer, self._ends = Consumer(dict(config)), ends
        self._told: set[int | None] = set()

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        first, _ = self._consumer.get_watermark_offsets(place, timeout=timeout)
        return first, self._ends[place.partition]

    def assign(self, places: list[TopicPartition]) -> None:
        self._told.clear()
        self._consumer.assign(places)

    def poll(self, timeout: float) -> "Message | _End | None":
        message = self._consumer.poll(timeout)
        return None if message is None else self._seen(message)

    def consume(self, number: int, timeout: float) -> "list[Message | _End]":
        messages = self._consumer.consume(number, timeout)
        return [seen for each in messages if (seen := self._seen(each)) is not None]

    def _seen(self, message: Message) -> "Message | _End | None":
        partition = message.partition() or 0
        if message.error() is None and (message.offset() or 0) < self._ends[partition]:
            return message
        if partition in self._told:
            return None
        self._told.add(partition)
        return _End(partition, self._ends[partition])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self._consumer, name)
        return found


class _End:
    """librdkafka's report at the end of a partition."""

    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)  # librdkafka's name

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset
