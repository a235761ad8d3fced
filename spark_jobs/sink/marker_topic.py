"""Keep markers in a compacted topic with one partition per shuffle partition."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from outbox.errors import BadSettings
from outbox.kafka_errors import OF_GROUP, right, told
from spark_jobs.errors import KafkaUnavailable, MarkerRefused
from spark_jobs.sink import kafka_options
from spark_jobs.sink.markers import Marker

# Each writer has a partition of its own, because another's open transaction would hide committed
# records. Segments are small, because uncompacted records are read from the end backwards.
CONFIG = {"cleanup.policy": "compact", "segment.bytes": "4194304"}

_TAIL = 100
_POLL_SECONDS = 0.1
# The client takes no request that may last longer than this.
_LONGEST_SECONDS = 3_600.0
# The leader has a committed nonce; the end of its partition follows a moment later.
_PATIENCE_SECONDS = 1.0
_NONCE = b"fence"
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001  # librdkafka's name
# A broker that goes or comes back answers with these, and no setting is wrong.
_PASSING = kafka_options.CONNECTION | {KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER}


class _Stale(Exception):
    """The broker that answers lacks what was committed."""


class MarkerTopic:
    """The markers of one query."""

    def __init__(self, name: str, properties: Mapping[str, str], *, timeout: float) -> None:
        self.name, self._timeout = name, min(timeout, _LONGEST_SECONDS)
        self._client = kafka_options.client(properties)
        self.written_at = 0
        """When the newest marker that was read was written, in milliseconds; 0: none was read."""

    def partitions(self) -> int:
        """
        Return the topic's number of partitions; 0 if it does not exist.

        Raises:
            KafkaUnavailable: the broker does not answer in time.
        """
        try:
            found = self._admin().list_topics(timeout=self._timeout).topics.get(self.name)
        except KafkaException as error:
            raise self._unavailable(error) from error
        return 0 if found is None or found.error is not None else len(found.partitions)

    def ensure(self, partitions: int, *, dry_run: bool = False) -> None:
        """
        Make sure that the topic has at least `partitions` partitions; `dry_run`: check only.

        Raises:
            BadSettings: it does not exist and may not be created, or it is not compacted.
            KafkaUnavailable: the broker does not answer in time.
        """
        try:
            operation = "Describe"
            there = self.partitions()
            if there:
                operation = "DescribeConfigs"
                self._require_compaction()
            if there < partitions:
                operation = "Alter" if there else "Create"
                self._make(there, partitions, dry_run=dry_run)
        except KafkaException as error:
            if error.args[0].code() in _PASSING:
                raise self._unavailable(error) from error
            said = told(error.args[0], right(operation, "topic", self.name))
            msg = (
                f"marker topic {self.name}: {said}; if this client may not create "
                f"topics, create it with {partitions} partitions and {_config_text()}"
            )
            raise BadSettings(msg) from error

    def _make(self, there: int, wanted: int, *, dry_run: bool) -> None:
        admin = self._admin()
        if there:
            grown = [NewPartitions(self.name, wanted)]
            made = admin.create_partitions(
                grown, validate_only=dry_run, request_timeout=self._timeout
            )
        else:
            topic = NewTopic(self.name, num_partitions=wanted, config=CONFIG)
            made = admin.create_topics(
                [topic], validate_only=dry_run, request_timeout=self._timeout
            )
        try:
            made[self.name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        if not dry_run:
            self._await_partitions(wanted)

    def _await_partitions(self, wanted: int) -> None:
        """Wait until the brokers know the partitions that were created."""
        deadline = time.monotonic() + self._timeout
        while self.partitions() < wanted:
            if time.monotonic() > deadline:
                msg = f"marker topic {self.name} was made, but its partitions do not appear"
                raise KafkaUnavailable(msg)

    def _require_compaction(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        admin = self._admin()  # kept until it has answered: a client takes its requests with it
        answer = admin.describe_configs([resource], request_timeout=self._timeout)[resource]
        policy = answer.result()["cleanup.policy"].value
        if policy != "compact":
            msg = (
                f"marker topic {self.name} has cleanup.policy={policy}: its markers would be "
                f"deleted, and batches written twice. Set it to {_config_text()}"
            )
            raise BadSettings(msg)

    def read(self, partitions: Iterable[int]) -> dict[int, Marker]:
        """
        Return the newest marker of each of `partitions` that has one, as far as a broker knows.

        It reads up to the first open transaction. A broker that has lost the leadership without
        noticing answers with what it knew. Only `read_after` is certain.

        Raises:
            KafkaUnavailable: the broker does not answer in time.
            MarkerRefused: a marker cannot be understood.
        """
        try:
            with self._consumer() as consumer:
                found = {p: self._tail(consumer, p, None) for p in partitions}
        except KafkaException as error:
            raise self._unavailable(error) from error
        return {p: self._decoded(value) for p, value in found.items() if value is not None}

    def read_after(self, partition: int, nonce: bytes) -> Marker | None:
        """
        Return the newest marker of a partition before `nonce`, which was committed there.

        After a fence this answer is certain. A broker that was cut off from the others may go on
        answering as if it led the partition, from a log without the newest markers. But such a log
        lacks `nonce` as well, which the leader took. So a broker without `nonce` is not believed,
        and is asked again over new connections.

        Raises:
            KafkaUnavailable: the broker does not answer in time, or no broker has `nonce`.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                with self._consumer() as consumer:
                    value = self._tail(consumer, partition, nonce)
            except (_Stale, KafkaException) as error:
                if time.monotonic() > deadline:
                    raise self._unavailable(error) from error
            else:
                return None if value is None else self._decoded(value)

    def _tail(self, consumer: Consumer, partition: int, nonce: bytes | None) -> bytes | None:
        """Return the last marker; look further back only if there is none near the end."""
        place = TopicPartition(self.name, partition)
        try:
            first, end = consumer.get_watermark_offsets(place, timeout=self._timeout)
        except KafkaException as error:
            if nonce is None and error.args[0].code() in _MISSING:
                return None
            raise
        tail = _TAIL
        while True:
            start = max(first, end - tail)
            value = self._scan(consumer, TopicPartition(self.name, partition, start), end, nonce)
            if value is not None or start == first:
                return value
            tail *= 10

    def _scan(
        self, consumer: Consumer, place: TopicPartition, end: int, nonce: bytes | None
    ) -> bytes | None:
        """Return the last marker from `place` up to `nonce`, or up to `end` if there is none."""
        found: bytes | None = None
        for message in self._records(consumer, place, end, beyond=nonce is not None):
            if message.key() != _NONCE:
                found = message.value()
                self.written_at = max(self.written_at, message.timestamp()[1])
            elif message.value() == nonce:
                return found
        return found

    def _records(
        self, consumer: Consumer, place: TopicPartition, end: int, *, beyond: bool
    ) -> Iterator[Message]:
        """
        Yield the committed records from `place` up to `end`, or `beyond` it until none comes.
        """
        position, came = place.offset, time.monotonic()
        consumer.assign([place])
        while beyond or position < end:
            message = consumer.poll(_POLL_SECONDS)
            if message is not None and message.partition() == place.partition:
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    position, came = offset + 1, time.monotonic()
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    position = max(position, offset)
                elif not error.retriable() and error.code() != OF_GROUP:
                    raise KafkaException(error)
            self._require_more(place.partition, position, end, time.monotonic() - came)

    def _require_more(self, partition: int, position: int, end: int, silent: float) -> None:
        if position < end and silent > self._timeout:
            msg = (
                f"marker topic {self.name}: at offset {position} of {end} in partition "
                f"{partition} after {self._timeout:g} s"
            )
            raise KafkaUnavailable(msg)
        if position >= end and silent > _PATIENCE_SECONDS:
            msg = (
                f"the broker that answers for partition {partition} ends at {position}, before "
                "what was just committed there: it was cut off from the others"
            )
            raise _Stale(msg)

    def _decoded(self, value: bytes) -> Marker:
        try:
            return Marker.decode(value)
        except ValueError as error:
            msg = f"marker topic {self.name}: {error}; a newer dovecote wrote it: upgrade this one"
            raise MarkerRefused(msg) from error

    def _unavailable(self, error: Exception) -> KafkaUnavailable:
        said: object = error
        if isinstance(error, KafkaException):
            said = told(error.args[0], right("Read", "topic", self.name))
        return KafkaUnavailable(f"marker topic {self.name}: {said}")

    def _admin(self) -> AdminClient:
        given = partial(kafka_options.quiet, self._client)
        return kafka_options.made(AdminClient, given, patience=self._timeout)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = kafka_options.made(
            Consumer,
            lambda: {
                **kafka_options.quiet(self._client),
                "group.id": "dovecote-markers",  # required by the client, never used
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            },
            patience=self._timeout,
        )
        try:
            yield consumer
        finally:
            consumer.close()


def fence(nonce: bytes) -> tuple[bytes, bytes]:
    """Return value and key of the record by which `read_after` recognises the leader."""
    return nonce, _NONCE


def _config_text() -> str:
    return ", ".join(f"{name}={value}" for name, value in CONFIG.items())
