"""Where markers are kept: a compacted topic with one partition per shuffle partition."""

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from outbox.errors import BadSettings
from spark_jobs import kafka_options
from spark_jobs.errors import KafkaUnavailable, MarkerRefused
from spark_jobs.markers import Marker

# With another's open transaction in it, a partition hides what is committed: hence one each. Small
# segments, for what is not compacted yet is read from the end backwards.
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "4194304"}

_TAIL = 100
_POLL_SECONDS = 0.1
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001  # librdkafka's name


class MarkerTopic:
    """The markers of one query."""

    def __init__(self, name: str, properties: Mapping[str, str], *, timeout: float) -> None:
        self.name, self._timeout = name, timeout
        self._client = kafka_options.client(properties)

    def partitions(self) -> int:
        """Return how many partitions the topic has; 0 if it is not there."""
        found = self._admin().list_topics(timeout=self._timeout).topics.get(self.name)
        return 0 if found is None or found.error is not None else len(found.partitions)

    def ensure(self, partitions: int, *, dry_run: bool = False) -> None:
        """
        Have the topic there with at least `partitions` partitions; `dry_run`: see if it can be.

        Raises:
            BadSettings: it is not there and may not be made, or it is not compacted.
        """
        try:
            there = self.partitions()
            if there:
                self._require_compaction()
            if there < partitions:
                self._make(there, partitions, dry_run=dry_run)
        except KafkaException as error:
            msg = (
                f"marker topic {self.name}: {error.args[0].str()}; if this client may not create "
                f"topics, create it with {partitions} partitions and {_config_text()}"
            )
            raise BadSettings(msg) from error

    def _make(self, there: int, wanted: int, *, dry_run: bool) -> None:
        admin = self._admin()
        if there:
            grown = [NewPartitions(self.name, wanted)]
            made = admin.create_partitions(grown, validate_only=dry_run)
        else:
            topic = NewTopic(self.name, num_partitions=wanted, config=CONFIG)
            made = admin.create_topics([topic], validate_only=dry_run)
        try:
            made[self.name].result(self._timeout)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        if not dry_run:
            self._await_partitions(wanted)

    def _await_partitions(self, wanted: int) -> None:
        """Wait until brokers know the partitions they were told to make."""
        deadline = time.monotonic() + self._timeout
        while self.partitions() < wanted:
            if time.monotonic() > deadline:
                msg = f"marker topic {self.name} was made, but its partitions do not appear"
                raise KafkaUnavailable(msg)

    def _require_compaction(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        admin = self._admin()  # kept until it has answered: it takes its questions with it
        answer = admin.describe_configs([resource])[resource]
        policy = answer.result(self._timeout)["cleanup.policy"].value
        if policy != "compact":
            msg = (
                f"marker topic {self.name} has cleanup.policy={policy}: its markers would be "
                f"deleted, and batches written twice. Set it to {_config_text()}"
            )
            raise BadSettings(msg)

    def read(self, partitions: Iterable[int], *, fenced: bool) -> dict[int, Marker]:
        """
        Return the newest committed marker of each of `partitions` that has one.

        `fenced`: no transaction can be open in them any more, so read to the true end. Otherwise
        up to the first transaction that is open.

        Raises:
            KafkaUnavailable: the broker does not answer in time.
            MarkerRefused: a marker cannot be understood.
        """
        try:
            ends = self._ends(partitions, "read_uncommitted" if fenced else "read_committed")
            found = self._read(ends)
        except KafkaException as error:
            msg = f"marker topic {self.name}: {error.args[0].str()}"
            raise KafkaUnavailable(msg) from error
        try:
            return {partition: Marker.decode(value) for partition, value in found.items()}
        except ValueError as error:
            msg = f"marker topic {self.name}: {error}; a newer dovecote wrote it: upgrade this one"
            raise MarkerRefused(msg) from error

    def _ends(self, partitions: Iterable[int], isolation: str) -> dict[int, tuple[int, int]]:
        """Return the first offset and the end of each partition that is there."""
        consumer = self._consumer(isolation)
        try:
            return {p: ends for p in partitions if (ends := self._end(consumer, p)) is not None}
        finally:
            consumer.close()

    def _end(self, consumer: Consumer, partition: int) -> tuple[int, int] | None:
        place = TopicPartition(self.name, partition)
        try:
            first, end = consumer.get_watermark_offsets(place, timeout=self._timeout)
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                return None
            raise
        return first, end

    def _read(self, ends: Mapping[int, tuple[int, int]]) -> dict[int, bytes]:
        consumer = self._consumer("read_committed")
        try:
            found = {p: self._newest(consumer, p, *ends[p]) for p in ends}
        finally:
            consumer.close()
        return {partition: value for partition, value in found.items() if value is not None}

    def _newest(self, consumer: Consumer, partition: int, first: int, end: int) -> bytes | None:
        """Return the last marker before `end`, looking further back only if there is none."""
        tail = _TAIL
        while True:
            start = max(first, end - tail)
            value = self._scan(consumer, TopicPartition(self.name, partition, start), end)
            if value is not None or start == first:
                return value
            tail *= 10

    def _scan(self, consumer: Consumer, place: TopicPartition, end: int) -> bytes | None:
        found: bytes | None = None
        position = place.offset
        deadline = time.monotonic() + self._timeout
        if position >= end:
            return None
        consumer.assign([place])
        while position < end:
            message = consumer.poll(_POLL_SECONDS)
            if message is not None and message.partition() == place.partition:
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    found, position = message.value(), offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    position = max(position, offset)
                elif not error.retriable():
                    raise KafkaException(error)
            if position < end and time.monotonic() > deadline:
                msg = (
                    f"marker topic {self.name}: at offset {position} of {end} in partition "
                    f"{place.partition} after {self._timeout:g} s"
                )
                raise KafkaUnavailable(msg)
        return found

    def _admin(self) -> AdminClient:
        return AdminClient({**self._client, "log_level": 0})

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": "dovecote-markers",  # asked for by the client, used for nothing
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )


def _config_text() -> str:
    return ", ".join(f"{name}={value}" for name, value in CONFIG.items())
