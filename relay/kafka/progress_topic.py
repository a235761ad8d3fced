"""Keep progress in Kafka: a compacted topic with one partition, read up to the fence."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NoReturn

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    ResourceType,
    TopicMetadata,
)
from confluent_kafka.cimpl import NewTopic

from outbox.kafka import kafka_logger
from outbox.kafka_errors import FORBIDDEN, OF_GROUP, right, told
from outbox.tokens.source import client_of, for_client, source_of
from relay.errors import Outage, Refused
from relay.kafka.errors import MISSING, shuts_out
from relay.rules.places.progress import Progress
from relay.rules.places.search import Search

_log = kafka_logger("dovecote.relay.kafka")

# Progress records to read first; the search goes further back only if the outbox has none there.
_TAIL = 1_000

_GROUP = "dovecote-progress"

ALWAYS_THERE = "__consumer_offsets"
"""A topic to ask for when only an answer matters; asking for another topic might create it."""

LONGEST_SECONDS = 1_800.0
"""The client refuses to wait for more than an hour, and creating a topic waits twice."""

_DELETED = "; was it deleted? Restore it: a relay started anew refuses to begin again"
_NOT_KNOWN_YET = "; it was made a moment ago, and not every broker knows of it yet"

# Seconds without progress after which a consumer is replaced by a new one.
_STANDSTILL = 1.0

_CLIENT = (
    "bootstrap.", "security.", "sasl.", "enable.sasl.", "ssl.", "enable.ssl.", "https.",
    "client.", "socket.", "connections.", "reconnect.", "broker.", "api.version.", "plugin.",
    "debug", "log", "identity",
)  # fmt: skip


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the producer's properties that say how to reach the broker."""
    return {name: value for name, value in given.items() if name.startswith(_CLIENT)}


class ProgressTopic:
    """The topic of the progress records."""

    def __init__(self, name: str, properties: Mapping[str, str], *, timeout: float) -> None:
        self.name, self._timeout = name, min(timeout, LONGEST_SECONDS)
        self._client = client_properties(properties)
        self._said: list[KafkaError] = []
        self._is_new = self._was_let_in = False

    def cluster(self) -> str:
        """
        Return the id of the Kafka cluster.

        Raises:
            Outage: the broker does not answer.
        """
        return str(self._metadata(self._admin()).cluster_id)

    def ensure(self, may_begin: Callable[[], object] | None = None) -> None:
        """
        Create the topic if it is missing, once `may_begin` has not raised.

        The topic is compacted with small segments, so that a takeover does not read a gigabyte.

        Raises:
            Outage: the broker does not answer.
            Refused: the topic exists but would mix or forget progress, or we may not create it.
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
            made = admin.create_topics(
                [topic], operation_timeout=self._timeout, request_timeout=2 * self._timeout
            )
            made[self.name].result()
            self._is_new = True
            _log.info("created progress topic %s", self.name)
        except KafkaException as error:
            self._explain_creation(error)

    def check(self) -> bool:
        """
        Return whether the topic exists, and check it as `ensure` does.

        Raises:
            Outage: the broker does not answer.
            Refused: the topic would mix or forget progress, or we may not see it.
        """
        try:
            is_sound = self._is_sound(self._admin())
            if not is_sound:
                self._require_sight()
        except KafkaException as error:
            msg = f"Kafka: {error.args[0].str()}"
            raise Outage(msg) from error
        return is_sound

    def _is_sound(self, admin: AdminClient) -> bool:
        """Return whether the topic exists; refuse it if it is not as it must be."""
        found = self._topics(admin).get(self.name)
        if found is None or found.error is not None:
            return False
        self._check_partitions(len(found.partitions))
        self._check_compaction(admin)
        return True

    def exists(self) -> bool:
        """
        Return whether the topic exists.

        Raises:
            Outage: the broker does not answer.
            Refused: we may not see it.
        """
        is_there = self.name in self._topics(self._admin())
        if not is_there:
            self._require_sight()
        return is_there

    def _require_sight(self) -> None:
        """
        Check that a topic that is not listed is not hidden from us.

        Only a question by name shows that. A consumer asks it, which creates no topic.
        """
        with closing(self._consumer()) as consumer:
            found = consumer.list_topics(self.name, timeout=self._timeout).topics[self.name]
        if found.error is not None and found.error.code() in FORBIDDEN:
            self._refuse(found.error)

    def _refuse(self, error: KafkaError) -> NoReturn:
        msg = f"not allowed to read progress: {told(error, right('Read', 'topic', self.name))}"
        raise Refused(msg)

    def _admin(self) -> AdminClient:
        self._said.clear()
        # The type declares the values as if there were no callbacks.
        listening: Any = {**for_client(self._client), "error_cb": self._said.append}
        return client_of(AdminClient, listening, _log)

    def _topics(self, admin: AdminClient) -> dict[str, TopicMetadata]:
        return self._metadata(admin).topics

    def _metadata(self, admin: AdminClient) -> ClusterMetadata:
        """
        Return the cluster's topics: the first question, which also shows whether we are let in.

        Raises:
            Outage: the broker does not answer.
            Refused: it does not let us in.
        """
        try:
            found = admin.list_topics(timeout=self._timeout)
        except KafkaException as error:
            admin.poll(0)  # calls error_cb with librdkafka's errors about its brokers
            shut = next(filter(shuts_out, self._said), None)
            # With tokens it may pass: one has expired, or the broker cannot ask for the keys.
            source = source_of(self._client)
            may_pass = source is not None and (self._was_let_in or source.trouble != "")
            if shut is not None and not may_pass:
                msg = (
                    f"Kafka: {shut.str()}; waiting does not mend that: correct `[kafka]` and its "
                    "secrets, or the broker's"
                )
                raise Refused(msg) from error
            reasons = [each.str() for each in (error.args[0], *self._said[:1])]
            msg = f"Kafka: {'; '.join(reasons)}"
            raise Outage(msg) from error
        self._was_let_in = True
        return found

    def _check_partitions(self, partitions: int) -> None:
        # If another transactional.id writes to the partition, its open transaction hides our
        # record.
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
            said = told(error.args[0], right("Create", "topic", self.name))
            msg = (
                f"not allowed to create progress topic {self.name}: {said}; or create it with 1 "
                "partition, cleanup.policy=compact, segment.bytes=4194304"
            )
            raise Refused(msg) from error
        msg = f"Kafka: progress topic {self.name}: {error.args[0].str()}"
        raise Outage(msg) from error

    def peek(self, name: str, outbox: str = "") -> Progress | None:
        """
        Return the progress committed so far, while another relay may still be at work.

        A broker that does not know yet that it has lost the leadership may answer with older
        progress. If the outbox with this id has none, progress of another outbox of this name is
        returned.

        Raises:
            Outage: the broker does not answer.
            Refused: the record cannot be understood.
        """
        return self._read(name, outbox, None)

    def read(self, name: str, outbox: str = "", *, fence: str) -> Progress | None:
        """
        Return the newest committed progress of an outbox, or None if there is none.

        Reads up to `fence`, a record committed by a producer that had fenced all others of the
        outbox: their transactions are over, and they cannot begin another. A broker that has lost
        the leadership without knowing it does not have that record, so its answer is never taken
        for the end.

        Raises:
            Outage: no broker that answers has the fence.
        """
        return self._read(name, outbox, fence)

    def _read(self, name: str, outbox: str, fence: str | None) -> Progress | None:
        try:
            found = self._found(Search(name, outbox, fence))
            self._is_new = False
        except KafkaException as error:
            msg = f"Kafka: progress topic {self.name}: {error.args[0].str()}"
            if error.args[0].code() in FORBIDDEN:
                self._refuse(error.args[0])
            if error.args[0].code() in MISSING:
                msg += _NOT_KNOWN_YET if self._is_new else _DELETED
            raise Outage(msg) from error
        except ValueError as error:
            msg = f"progress topic {self.name}: {error}; upgrade dovecote, or use another `name`"
            raise Refused(msg) from error
        return found

    def _found(self, search: "Search") -> Progress | None:
        deadline = time.monotonic() + self._timeout
        tail = _TAIL
        while True:
            consumer = self._consumer()
            try:
                place = TopicPartition(self.name, 0)
                first, end = consumer.get_watermark_offsets(place, timeout=self._timeout)
                start = max(first, end - tail)
                whole = self._scan(consumer, search.anew(), (start, end), deadline)
            except KafkaException as error:
                # The connection to the configured address ends as soon as the other brokers are
                # known.
                gone = error.args[0].code() == KafkaError._DESTROY_BROKER  # noqa: SLF001  # the name librdkafka gives it
                if not gone or time.monotonic() > deadline:
                    raise
                continue
            finally:
                consumer.close()
            if whole and (search.own is not None or start == first):
                return search.own or search.other
            if whole:
                tail *= 10
            elif time.monotonic() > deadline:
                what = (
                    "with the record that marks its end"
                    if search.fence
                    else "so that it can be read"
                )
                msg = (
                    f"Kafka: progress topic {self.name}: no broker answers within "
                    f"{self._timeout:g} s {what}: another transaction is open in it, or a broker "
                    "no longer leads it and does not know that yet"
                )
                raise Outage(msg)

    def _scan(
        self, consumer: Consumer, search: "Search", part: tuple[int, int], deadline: float
    ) -> bool:
        """
        Read to the fence, or to the end of `part` if there is none; return whether we got there.
        """
        start, end = part
        consumer.assign([TopicPartition(self.name, 0, start)])
        position, moved = start, time.monotonic()
        while not search.is_fenced and (search.fence or position < end):
            message = consumer.poll(0.05)
            now = time.monotonic()
            last = position
            if message is not None:
                position = max(position, _taken(message, search))
            elif (place := consumer.position([TopicPartition(self.name, 0)])[0].offset) >= 0:
                position = max(position, place)
            if position > last:
                moved = now
            # Another broker may lead by now, and a new consumer asks which one does.
            if now > deadline or now - moved > _STANDSTILL:
                return False
        return True

    def _consumer(self) -> Consumer:
        return client_of(
            Consumer,
            {
                **for_client(self._client),
                "group.id": _GROUP,  # required, never used: we assign
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                # The broker reports the end of the partition; by default it waits half a second
                # for more.
                "fetch.wait.max.ms": 5,
            },
            _log,
        )


def _taken(message: Message, search: Search) -> int:
    """Hand a record to the search, and return the offset after it."""
    error, offset = message.error(), message.offset() or 0
    if error is None:
        search.take(message.key(), message.value())
        return offset + 1
    if error.code() == OF_GROUP:
        return 0
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the name librdkafka gives it
        return offset
    raise KafkaException(error)
