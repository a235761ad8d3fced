"""Read topics as a `read_committed` consumer without a group, and ask where they end."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dovecote.audit.away import away
from dovecote.audit.rules.matching import Raw, milliseconds
from dovecote.observe.topics import Topic, TopicAdmin
from outbox.errors import DovecoteError, NoClient
from outbox.tokens.polled import PolledConsumer
from outbox.tokens.source import lasting

_log = logging.getLogger("dovecote.audit.kafka")
_log.addHandler(logging.NullHandler())
KAFKA = "Kafka"
"""The name of its troubles."""

_SECONDS = 15.0
_END = KafkaError._PARTITION_EOF  # noqa: SLF001  # librdkafka's name
_RESET = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  # as above
_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
_BOUNDS = {
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": "10000",
    "fetch.max.bytes": "2097152",
    "max.partition.fetch.bytes": "262144",
}


class Lost(NamedTuple):
    """Offsets that a partition no longer had when they were asked for."""

    topic: int
    partition: int
    offset: int


class Topics:
    """The audited topics of one cluster."""

    def __init__(self, kafka: Mapping[str, str], group: str = "dovecote-audit") -> None:
        """`group` is only asked where it has committed; nothing joins it."""
        self._kafka, self._group = dict(kafka), group
        self._consumer: Consumer | None = None
        self.names: list[str] = []
        """The topics by number."""
        self.numbers: dict[str, int] = {}
        self.positions: dict[int, dict[int, int]] = {}
        """For each topic that is read, the next offset of each partition."""
        self.resets: list[Lost] = []
        self.trouble = ""
        self.hidden: list[str] = []
        """Kafka does not let us see these topics of the last description."""

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def assign(self) -> None:
        """Read from `positions` on, after they were changed."""
        if self._consumer is None:
            self._consumer = self._made()
        self._consumer.assign(
            [
                TopicPartition(self.names[topic], partition, offset)
                for topic, places in self.positions.items()
                for partition, offset in places.items()
            ]
        )

    def _made(self) -> Consumer:
        properties = {
            **_BOUNDS,
            **self._kafka,
            "check.crcs": "true",
            "group.id": self._group,
            "isolation.level": "read_committed",
            "enable.partition.eof": "true",
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": "100",
        }
        try:
            return lasting(PolledConsumer, properties, _log)
        except NoClient as error:
            raise away(KAFKA, str(error).removeprefix("Kafka: ")) from error

    def read(self, most: int, seconds: float) -> list[Raw]:
        """
        Return the next records, in the order of each partition.

        Offsets that are gone are in `resets`; nothing more comes of such a partition until it is
        assigned anew.
        """
        if self._consumer is None:
            self.assign()
        assert self._consumer is not None  # noqa: S101  # `assign` makes it
        raws: list[Raw] = []
        numbers, positions = self.numbers, self.positions
        self.trouble = ""
        try:
            messages = self._consumer.consume(most, seconds)
        except KafkaException as failure:
            self.trouble = failure.args[0].str()
            return raws
        for message in messages:
            error = message.error()
            topic = numbers.get(message.topic() or "")
            if error is not None:
                self._failed(message, error, topic)
                continue
            if topic is None:
                continue
            partition, offset = message.partition(), message.offset()
            positions[topic][partition] = offset + 1  # type: ignore[index,operator]  # a record has a place
            try:
                headers: Any = message.headers() or ()
            except (SystemError, UnicodeDecodeError):
                headers = ()  # not ours: the names of our headers are text
            raws.append(
                (
                    topic,
                    partition,
                    offset,
                    milliseconds(message.timestamp()[1]),
                    message.key(),
                    message.value(),
                    headers,
                )  # type: ignore[arg-type]  # a record has a place
            )
        return raws

    def _failed(self, message: Any, error: KafkaError, topic: int | None) -> None:  # noqa: ANN401  # the client's own
        if topic is not None and error.code() == _END:
            places = self.positions[topic]
            places[message.partition()] = max(places[message.partition()], message.offset())
        elif topic is not None and error.code() in {_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            self.resets.append(
                Lost(topic, message.partition(), self.positions[topic][message.partition()])
            )
        elif error.code() != _GROUP:
            self.trouble = error.str()

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """
        Return what Kafka says of those of these topics that are there.

        Raises:
            Away: Kafka does not answer.
        """
        wanted = list(names)
        try:
            admin = TopicAdmin(self._kafka)
            there = set(admin.names(internal=True))
            self.hidden = admin.hidden([n for n in wanted if n not in there])
            return {each.name: each for each in admin.describe([n for n in wanted if n in there])}
        except (DovecoteError, KafkaException) as error:
            raise away(KAFKA, error) from error

    def offsets_at(self, topic: str, partitions: Sequence[int], at: int) -> dict[int, int]:
        """Return the first offset of each partition that is not older than a time; -1: none."""
        if self._consumer is None:
            self._consumer = self._made()
        try:
            asked = [TopicPartition(topic, each, max(0, at)) for each in partitions]
            found = self._consumer.offsets_for_times(asked, timeout=_SECONDS)
        except KafkaException as error:
            raise away(KAFKA, error.args[0].str()) from error
        _require_answers(found)
        return {each.partition: each.offset for each in found}

    def committed(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Return where the group has committed to, of the partitions where it has."""
        if self._consumer is None:
            self._consumer = self._made()
        try:
            found = self._consumer.committed(
                [TopicPartition(topic, each) for each in partitions], timeout=_SECONDS
            )
        except KafkaException as error:
            raise away(KAFKA, error.args[0].str()) from error
        _require_answers(found)
        return {each.partition: each.offset for each in found if each.offset >= 0}


def unknown_in(topic: Topic) -> list[int]:
    """Return the partitions of which Kafka does not say where they begin or end."""
    return [each.number for each in topic.partitions if each.first is None or each.end is None]


def _require_answers(places: Iterable[TopicPartition]) -> None:
    """
    Check that Kafka answers for each partition.

    The offset of one without an answer looks like that of an empty one.

    Raises:
        Away: it does not.
    """
    for each in places:
        if each.error is not None:
            raise away(KAFKA, each.error.str())
