"""Keep progress in Kafka: a compacted topic with one partition, read behind the fence."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ConfigResource,
    ResourceType,
    TopicMetadata,
)
from confluent_kafka.cimpl import NewTopic

from outbox.kafka_log import kafka_logger
from relay.errors import Outage, Refused
from relay.kafka_errors import FORBIDDEN, MISSING, shuts_out
from relay.progress import Progress

_log = kafka_logger("dovecote.relay.kafka")

# Progress records to read first; further back only if the outbox's own is not among them.
_TAIL = 1_000

_GROUP = "dovecote-progress"

_CLIENT = (
    "bootstrap.", "security.", "sasl.", "enable.sasl.", "ssl.", "enable.ssl.", "https.",
    "client.", "socket.", "connections.", "reconnect.", "broker.", "api.version.", "plugin.",
    "debug", "log",
)  # fmt: skip


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return those of the producer's properties that say how to reach the broker."""
    return {name: value for name, value in given.items() if name.startswith(_CLIENT)}


class ProgressTopic:
    """Where progress records are."""

    def __init__(self, name: str, properties: Mapping[str, str], *, timeout: float) -> None:
        self.name, self._timeout = name, timeout
        self._client = client_properties(properties)
        self._said: list[KafkaError] = []

    def ensure(self, may_begin: Callable[[], object] | None = None) -> None:
        """
        Create the topic if it is missing, once `may_begin` has not raised.

        Compacted, with small segments: a takeover must not read a gigabyte.

        Raises:
            Outage: the broker does not answer.
            Refused: the topic is there but would mix or forget progress, or we may not create it.
        """
        admin = self._admin()
        try:
            if self._is_sound(admin):
                return
            if may_begin is not None:
                may_begin()
            topic = NewTopic(
                self.name,
                num_partitions=1,
                config={"cleanup.policy": "compact", "segment.bytes": "4194304"},
            )
            admin.create_topics([topic], operation_timeout=self._timeout)[self.name].result()
            _log.info("created progress topic %s", self.name)
        except KafkaException as error:
            self._explain_creation(error)

    def check(self) -> bool:
        """
        Tell whether the topic is there, and check it as `ensure` does.

        Raises:
            Outage: the broker does not answer.
            Refused: the topic would mix or forget progress.
        """
        try:
            return self._is_sound(self._admin())
        except KafkaException as error:
            msg = f"Kafka: {error.args[0].str()}"
            raise Outage(msg) from error

    def _is_sound(self, admin: AdminClient) -> bool:
        """Tell whether the topic is there; it is refused if it is not as it must be."""
        found = self._topics(admin).get(self.name)
        if found is None or found.error is not None:
            return False
        self._check_partitions(len(found.partitions))
        self._check_compaction(admin)
        return True

    def exists(self) -> bool:
        """
        Tell whether the topic is there.

        Raises:
            Outage: the broker does not answer.
        """
        return self.name in self._topics(self._admin())

    def _admin(self) -> AdminClient:
        self._said.clear()
        # Declared as if there were no callbacks.
        listening: Any = {**self._client, "error_cb": self._said.append}
        return AdminClient(listening, logger=_log)

    def _topics(self, admin: AdminClient) -> dict[str, TopicMetadata]:
        """
        Return what topics there are: the first question, which tells whether we are let in.

        Raises:
            Outage: the broker does not answer.
            Refused: it does not let us in.
        """
        try:
            return admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            admin.poll(0)  # hands over what librdkafka has to say of its brokers
            if shut := next(filter(shuts_out, self._said), None):
                msg = (
                    f"Kafka: {shut.str()}; waiting does not mend that: correct `[kafka]` and its "
                    "secrets, or the broker's"
                )
                raise Refused(msg) from error
            reasons = [each.str() for each in (error.args[0], *self._said[:1])]
            msg = f"Kafka: {'; '.join(reasons)}"
            raise Outage(msg) from error

    def _check_partitions(self, partitions: int) -> None:
        # With another transactional.id in the partition, its open transaction hides our record.
        if partitions != 1:
            msg = (
                f"progress topic {self.name} has {partitions} partitions instead of 1; set "
                "`progress_topic` to a topic of this outbox's own"
            )
            raise Refused(msg)

    def _check_compaction(self, admin: AdminClient) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.name)
        try:
            config = admin.describe_configs([resource], request_timeout=self._timeout)
            policy = config[resource].result()["cleanup.policy"].value
        except KafkaException as error:
            if error.args[0].code() in FORBIDDEN:
                _log.info("not allowed to see the cleanup.policy of %s", self.name)
                return
            raise
        if policy != "compact":
            msg = (
                f"progress topic {self.name} has cleanup.policy={policy}: it would forget "
                "progress, and everything be published again; set it to compact"
            )
            raise Refused(msg)

    def _explain_creation(self, error: KafkaException) -> None:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        if code in FORBIDDEN:
            msg = (
                f"not allowed to create progress topic {self.name}; create it with 1 partition, "
                "cleanup.policy=compact, segment.bytes=4194304"
            )
            raise Refused(msg) from error
        msg = f"Kafka: progress topic {self.name}: {error.args[0].str()}"
        raise Outage(msg) from error

    def peek(self, name: str) -> Progress | None:
        """Return what was committed so far, while another relay may still be at work."""
        return self._read(name, isolation="read_committed")

    def read(self, name: str) -> Progress | None:
        """
        Return the newest committed progress of outbox `name`, or None if there is none.

        Reads to the true end of the log. Behind a fence that is the truth: the older relay's
        transaction is over, and it can't begin another.

        Raises:
            Outage: the broker does not answer.
            Refused: the record cannot be understood.
        """
        return self._read(name, isolation="read_uncommitted")

    def _read(self, name: str, *, isolation: str) -> Progress | None:
        try:
            first, end = self._watermarks(isolation)
            tail = _TAIL
            while True:
                start = max(first, end - tail)
                value = self._scan(name.encode(), start, end)
                if value is not None or start == first:
                    break
                tail *= 10
        except KafkaException as error:
            msg = f"Kafka: progress topic {self.name}: {error.args[0].str()}"
            if error.args[0].code() in FORBIDDEN:
                msg = (
                    f"not allowed to read progress topic {self.name} ({error.args[0].str()}); "
                    f"grant `Read` on it, and `Describe` on the group {_GROUP}"
                )
                raise Refused(msg) from error
            if error.args[0].code() in MISSING:
                msg += "; was it deleted? Restore it: a relay started anew refuses to begin again"
            raise Outage(msg) from error
        try:
            return None if value is None else Progress.decode(value)
        except ValueError as error:
            msg = f"progress topic {self.name}: {error}; upgrade dovecote, or use another `name`"
            raise Refused(msg) from error

    def _consumer(self, isolation: str) -> Consumer:
        return Consumer(
            {
                **self._client,
                "group.id": _GROUP,  # required, never used: we assign
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                # The broker says that it has no more: by default it waits for more half a second.
                "fetch.wait.max.ms": 5,
            },
            logger=_log,
        )

    def _watermarks(self, isolation: str) -> tuple[int, int]:
        """Return the log's first offset and its end: `read_committed` hides what is open."""
        consumer = self._consumer(isolation)
        try:
            place = TopicPartition(self.name, 0)
            first, end = consumer.get_watermark_offsets(place, timeout=self._timeout)
            return first, end
        finally:
            consumer.close()

    def _scan(self, key: bytes, start: int, end: int) -> bytes | None:
        """Return the value of the last committed record of `key` in the offsets from `start`."""
        consumer = self._consumer("read_committed")
        found: bytes | None = None
        try:
            consumer.assign([TopicPartition(self.name, 0, start)])
            deadline = time.monotonic() + self._timeout
            position = start
            while position < end:
                message = consumer.poll(0.1)
                if message is not None:
                    found, position = self._take(message, key, found)
                elif (now := consumer.position([TopicPartition(self.name, 0)])[0].offset) >= 0:
                    position = max(position, now)
                if position < end and time.monotonic() > deadline:
                    msg = (
                        f"Kafka: progress topic {self.name}: offset {position} of {end} after "
                        f"{self._timeout:g} s; another transaction is open in it"
                    )
                    raise Outage(msg)
            return found
        finally:
            consumer.close()

    @staticmethod
    def _take(message: Message, key: bytes, found: bytes | None) -> tuple[bytes | None, int]:
        """Return the newest value of `key` and the offset after `message`."""
        error, offset = message.error(), message.offset() or 0
        if error is None:
            value = message.value() if message.key() == key else found
            return value, offset + 1
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the name librdkafka gives it
            return found, offset
        raise KafkaException(error)
