"""Read a stretch of a topic, as a `read_committed` consumer sees it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dedup.rules.record import Record
from dedup.rules.unread import Place
from dedup.unread.probing import CHECKED, OF_RECORD
from dovecote.observe.rules.start import Start, first_offsets
from outbox.errors import BadSettings, DovecoteError
from outbox.kafka import fields_of, kafka_logger
from outbox.kafka_errors import OF_GROUP, require_answers, right, told
from outbox.tokens.source import client_of, for_client

GROUP = "dovecote-observe"
"""Names those who look at topics; nothing is committed with it."""

_log = kafka_logger("dovecote.observe.kafka")

_SECONDS = 10.0
# A broker that says nothing for so long, neither a record nor the end, is silent.
_SILENT_SECONDS = 30.0
_CHUNK = 500
_POLL_SECONDS = 0.5
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # librdkafka's names
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # as above
}


class Reader:
    """
    Reads one topic from a start on; a generator of `records` closes with it.

    It belongs to no group and commits nothing, so nobody is disturbed.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str, *, uncommitted: bool = False) -> None:
        self._kafka, self._topic = dict(kafka), topic
        self._isolation = "read_uncommitted" if uncommitted else "read_committed"

    def records(
        self, start: Start, *, partition: int | None = None, follow: bool = False
    ) -> Iterator[Record]:
        """
        Yield records in the order of each partition, up to the end, or for ever if `follow`.

        Raises:
            DovecoteError: the topic is not there, a record cannot be read, or Kafka is silent.
        """
        with self._consumer() as consumer, _kafka_errors(self._kafka, self._topic):
            numbers = partitions(consumer, self._topic)
            if partition is not None:
                numbers = [each for each in numbers if each == partition]
                if not numbers:
                    msg = f"topic {self._topic!r} has no partition {partition}"
                    raise BadSettings(msg)
            begun = self._begun(consumer, numbers, start)
            consumer.assign([TopicPartition(self._topic, *each) for each in begun.items()])
            yield from self._read(consumer, None if follow else set(begun))

    def _begun(self, consumer: Consumer, numbers: list[int], start: Start) -> dict[int, int]:
        ends = {
            each: consumer.get_watermark_offsets(
                TopicPartition(self._topic, each), timeout=_SECONDS
            )
            for each in numbers
        }
        by_time: dict[int, int] = {}
        if start.at is not None:
            at = max(0, int(start.at.timestamp() * 1000))
            asked = [TopicPartition(self._topic, each, at) for each in numbers]
            answers = require_answers(consumer.offsets_for_times(asked, timeout=_SECONDS))
            by_time = {each.partition: each.offset for each in answers}
        return first_offsets(start, ends, by_time)

    def _read(self, consumer: Consumer, open_: set[int] | None) -> Iterator[Record]:
        """Yield records until the partitions in `open_` have ended; None: they never do."""
        heard = time.monotonic()
        while open_ is None or open_:
            messages = consumer.consume(_CHUNK, _POLL_SECONDS)
            if messages:
                heard = time.monotonic()
            elif open_ is not None and time.monotonic() - heard > _SILENT_SECONDS:
                msg = f"the end of topic {self._topic!r} was not reached: the broker is silent"
                raise DovecoteError(msg)
            for message in messages:
                error = message.error()
                if error is None:
                    yield Record(*fields_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    if open_ is not None:
                        open_.discard(message.partition())
                else:
                    self._require_passing(message, error)

    def _require_passing(self, message: Any, error: KafkaError) -> None:  # noqa: ANN401  # confluent-kafka has no types of its own
        if error.code() in OF_RECORD and message.topic() == self._topic:
            place = Place(self._topic, message.partition(), message.offset())
            msg = (
                f"the record at {place} cannot be read: {error.str()}; read on after it: "
                f"--partition {place.partition} --from a later time"
            )
            raise DovecoteError(msg)
        if not error.retriable() and error.code() != OF_GROUP:
            raise KafkaException(error)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = client_of(
            Consumer,
            {
                **CHECKED,
                **for_client(self._kafka),
                "group.id": GROUP,
                "isolation.level": self._isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            },
            _log,
        )
        try:
            yield consumer
        finally:
            consumer.close()


def partitions(consumer: Consumer, topic: str) -> list[int]:
    """
    Return the numbers of a topic's partitions.

    Raises:
        DovecoteError: there is no such topic that we may see.
    """
    found = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
    if found.error is not None and found.error.code() in _MISSING:
        msg = f"no topic {topic!r} that we may see; `dovecote topic list` shows those that are"
        raise DovecoteError(msg)
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


@contextmanager
def _kafka_errors(kafka: Mapping[str, str], topic: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        said = told(error.args[0], right("Read", "topic", topic))
        msg = (
            f"topic {topic!r} cannot be read at "
            f"{kafka.get('bootstrap.servers', 'no address')}: {said}"
        )
        raise DovecoteError(msg) from error
