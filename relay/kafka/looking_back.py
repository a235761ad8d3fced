"""Read back what Kafka has: the ids of events, from a time up to the end."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

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
)

from outbox.envelope import ID
from outbox.kafka import headers_of, kafka_logger
from outbox.kafka_errors import FORBIDDEN, require_answers, right, told
from outbox.timestamps import milliseconds
from outbox.tokens.source import client_of, for_client
from relay.errors import Outage, Refused
from relay.kafka.errors import MISSING
from relay.kafka.progress_topic import LONGEST_SECONDS, client_properties
from relay.rules.reconciliation import Doubts, Sent

_log = logging.getLogger("dovecote.relay")
_client_log = kafka_logger("dovecote.relay.kafka")

_GROUP = "dovecote-progress"  # required, never used: we assign
_CHUNK = 5_000
# A broker that leads a partition no more may not know it, so each broker is asked by itself.
_ASK = 5.0


class LookingBack:
    """
    The events in doubt that Kafka has, and the records that belong to none of them.

    If it is begun again it goes on where it stopped. It keeps in memory the ids in doubt, and the
    records that belong to no event.
    """

    def __init__(
        self, kafka: Mapping[str, str], *, start: int, since: int, timeout: float
    ) -> None:
        """
        Look at what was sent from `start` on; times are in milliseconds since 1970.

        Records sent before `since` may belong to events that the database has already deleted.
        """
        self._kafka = client_properties(kafka)
        self._timeout = min(timeout, LONGEST_SECONDS)
        self._start, self._since = max(0, start), since
        self._doubts = Doubts()
        self._next: dict[tuple[str, int], int] = {}
        self.found: dict[str, set[bytes]] = {}
        self.compacted: set[str] = set()
        self._strangers: dict[tuple[str, bytes], Sent] = {}

    @property
    def strangers(self) -> list[Sent]:
        """The records that belong to no event in doubt."""
        has = self._doubts.has
        return [sent for each, sent in self._strangers.items() if not has(*each)]

    def read(self, doubts: Doubts, topics: Collection[str], *, fenced: bool) -> None:
        """
        Look for the events in doubt in `topics`, up to where they end now.

        If the relay's producers are `fenced`, open transactions belong to others, and are waited
        for; otherwise only what comes before them is read.

        Raises:
            Outage: a broker does not answer, or brokers disagree about who leads a partition.
        """
        self._doubts = doubts
        try:
            isolation = "read_uncommitted" if fenced else "read_committed"
            consumer = client_of(Consumer, self._properties(isolation), _client_log)
            try:
                partitions = self._partitions(consumer, topics)
                ends = {
                    each: self._end(consumer, each) for each in self._begun(consumer, partitions)
                }
            finally:
                consumer.close()
            self._read_to(ends)
        except KafkaException as error:
            msg = f"Kafka: {error.args[0].str()}"
            raise Outage(msg) from error

    def _properties(self, isolation: str) -> dict[str, str | int | float | bool]:
        return {
            **for_client(self._kafka),
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }

    def _partitions(self, consumer: Consumer, topics: Collection[str]) -> list[tuple[str, int]]:
        """
        Return the partitions of the topics that exist, if all brokers agree on their leaders.
        """
        wanted = set(topics)
        metadata = consumer.list_topics(timeout=self._timeout)
        for topic in sorted(wanted - metadata.topics.keys()):
            # A topic that we may not see looks as if it were not there, until it is named.
            found = consumer.list_topics(topic, timeout=self._timeout).topics.get(topic)
            if found is not None and found.error and found.error.code() in FORBIDDEN:
                raise _refused(found.error, right("Read", "topic", topic))
        leaders = _leaders(metadata, wanted)
        for broker in metadata.brokers.values():
            # A client that knows one broker gets that broker's own belief.
            alone = {
                **for_client(self._kafka),
                "bootstrap.servers": f"{broker.host}:{broker.port}",
            }
            try:
                answer = client_of(AdminClient, alone, _client_log).list_topics(timeout=_ASK)
            except KafkaException as error:
                _log.warning("broker %s:%d: %s", broker.host, broker.port, error.args[0].str())
                continue
            theirs = _leaders(answer, wanted)
            # A topic that one of them does not know yet is no topic without events.
            if theirs != leaders:
                topic, number = min(each for each, _ in theirs.items() ^ leaders.items())
                msg = (
                    f"Kafka: brokers do not agree on who leads partition {number} of topic "
                    f"{topic}: one of them is cut off. Try again when it is not"
                )
                raise Outage(msg)
        return sorted(leaders)

    def _begun(
        self, consumer: Consumer, partitions: Iterable[tuple[str, int]]
    ) -> list[tuple[str, int]]:
        """Find out where to begin in the partitions that are new."""
        every = list(partitions)
        new = [each for each in every if each not in self._next]
        if new:
            configs = self._configs({topic for topic, _ in new})
            asked = [TopicPartition(*each, self._start) for each in new]
            answers = consumer.offsets_for_times(asked, timeout=self._timeout)
            for place in require_answers(answers):
                each = place.topic, place.partition
                low, high = consumer.get_watermark_offsets(place, timeout=self._timeout)
                offset = place.offset if 0 <= place.offset <= high else high
                self._require_whole(each, configs.get(place.topic, {}), low, offset)
                self._next[each] = offset
        return every

    def _require_whole(
        self, partition: tuple[str, int], config: Mapping[str, str], low: int, offset: int
    ) -> None:
        """Check that Kafka has removed nothing that was sent since then."""
        topic, number = partition
        if "compact" in config.get("cleanup.policy", ""):
            self.compacted.add(topic)
        keeps_for = int(config.get("retention.ms", "0"))
        keeps_bytes = int(config.get("retention.bytes", "0"))
        is_young = keeps_for < 0 or self._start > time.time() * 1000 - keeps_for
        if low == 0 or low < offset or (is_young and keeps_bytes < 0):
            return
        msg = (
            f"partition {number} of topic {topic} begins at offset {low}: Kafka has removed what "
            "was there before, and may have had events that are in doubt. Nothing was changed; "
            "give this relay a `name` of its own to publish all that the outbox holds again"
        )
        raise Refused(msg)

    def _configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        admin = client_of(AdminClient, for_client(self._kafka), _client_log)
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        found: dict[str, dict[str, str]] = {}
        if not resources:
            return found
        for resource, answer in admin.describe_configs(
            resources, request_timeout=self._timeout
        ).items():
            try:
                entries = answer.result()
            except KafkaException as error:
                # Not everybody may ask.
                _log.info("topic %s: %s", resource.name, error.args[0].str())
                continue
            found[resource.name] = {name: str(entry.value) for name, entry in entries.items()}
        return found

    def _end(self, consumer: Consumer, partition: tuple[str, int]) -> int:
        # The end of all records: what is committed after an open transaction counts too.
        place = TopicPartition(*partition)
        return consumer.get_watermark_offsets(place, timeout=self._timeout)[1]

    def _read_to(self, ends: Mapping[tuple[str, int], int]) -> None:
        left = {each for each, end in ends.items() if self._next[each] < end}
        if not left:
            return
        consumer = client_of(Consumer, self._properties("read_committed"), _client_log)
        try:
            consumer.assign([TopicPartition(*each, self._next[each]) for each in sorted(left)])
            moved = time.monotonic()
            while left:
                messages = consumer.consume(_CHUNK, 0.5)
                for message in messages:
                    each = str(message.topic()), int(message.partition() or 0)
                    if each not in ends:
                        continue  # an error about the client itself, and not about records
                    if self._take(each, message):
                        moved = time.monotonic()
                    if self._next[each] >= ends[each]:
                        left.discard(each)
                if time.monotonic() - moved > self._timeout:
                    topic, number = min(left)
                    msg = (
                        f"Kafka: partition {number} of topic {topic} is not read to its end "
                        f"within {self._timeout:g} s: another transaction is open in it, or the "
                        "broker is slow. Try again"
                    )
                    raise Outage(msg)
        finally:
            consumer.close()

    def _take(self, partition: tuple[str, int], message: Message) -> bool:
        """Take a record, or the end of a partition; return whether it is new."""
        error, offset = message.error(), message.offset() or 0
        before = self._next[partition]
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its name
            if error.retriable() or error.code() in _PASSING:
                return False
            if error.code() in FORBIDDEN:
                raise _refused(error, right("Read", "topic", partition[0]))
            raise KafkaException(error)
        self._next[partition] = max(before, offset if error else offset + 1)
        if error is None:
            self._learn(partition[0], message)
        return self._next[partition] > before

    def _learn(self, topic: str, message: Message) -> None:
        given = dict(headers_of(message)).get(ID)
        try:
            id_ = UUID((given or b"").decode() if isinstance(given, bytes) else str(given)).bytes
        except ValueError:
            # It belongs to another program: events have ids.
            return
        if self._doubts.has(topic, id_):
            self.found.setdefault(topic, set()).add(id_)
        elif (sent_at := milliseconds(message.timestamp()[1]) or 0) >= self._since:
            known = Sent(str(UUID(bytes=id_)), topic, message.key(), sent_at)
            self._strangers.setdefault((topic, id_), known)


_PASSING = {
    KafkaError._TRANSPORT,  # noqa: SLF001  # the names librdkafka gives them
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}


def _leaders(metadata: ClusterMetadata, topics: Collection[str]) -> dict[tuple[str, int], int]:
    """Return who leads each partition of the topics that exist."""
    found = {topic: each for topic, each in metadata.topics.items() if topic in topics}
    for each in found.values():
        if each.error is not None and each.error.code() not in MISSING:
            raise KafkaException(each.error)
    return {
        (topic, number): partition.leader
        for topic, each in found.items()
        for number, partition in each.partitions.items()
    }


def _refused(error: KafkaError, needed: str) -> Refused:
    said = told(error, needed)
    msg = f"not allowed to read what Kafka has: {said}"
    return Refused(msg)
