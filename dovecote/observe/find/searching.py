"""Search topics of one cluster for records, each from a time on, within a deadline."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from dedup.rules.identity import of_topic
from dedup.unread.probing import CHECKED, OF_RECORD
from dovecote.observe.find.rules.facts import Role
from dovecote.observe.find.rules.life import LookedAt, PartFailure
from dovecote.observe.find.rules.partitions import partition_of
from dovecote.observe.find.rules.plan import Target
from dovecote.observe.reading import GROUP
from outbox.envelope import Record
from outbox.kafka import fields_of, kafka_logger
from outbox.kafka_errors import FORBIDDEN, OF_GROUP, require_answers, right, told
from outbox.timestamps import milliseconds
from outbox.tokens.source import client_of, for_client

_log = kafka_logger("dovecote.observe.kafka")

_SECONDS = 5.0
_CHUNK = 2_000
_POLL_SECONDS = 0.1
# Once the event was found in one topic, the others are read for this long after it.
_AFTERWARDS_MS = 600_000
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # librdkafka's names
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # as above
}

Matches: TypeAlias = Callable[[Role, Any], bool]
"""Returns whether a message of the client, in a topic of this role, is looked for."""


@dataclass(slots=True)
class Searched:
    """The records that were found, and the stretches that were read for them."""

    records: list[Record] = field(default_factory=list)
    """Without their values, and with their times in milliseconds."""
    looked: dict[str, LookedAt] = field(default_factory=dict)
    failures: list[PartFailure] = field(default_factory=list)
    left_out: int = 0
    """Older records of the event's own topics, which were let go."""


@dataclass(slots=True)
class _Stretch:
    """One partition's part of a span."""

    target: Target
    until: int | None
    at: int
    """The time up to which it was read."""


class Search:
    """
    Reads topics of one cluster, as a `read_committed` consumer of no group sees them.

    It commits nothing. It ends after `seconds`, and says how far it has come.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        matches: Matches,
        *,
        seconds: float,
        most: int,
        ids: Mapping[str, str],
    ) -> None:
        """Keep the `most` newest records of events' own topics; `ids`: Kafka's ids of topics."""
        self._kafka, self._matches, self._most, self._ids = dict(kafka), matches, most, ids
        self._home: list[Record] = []
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._found = Searched()
        self._seen: set[str] = set()
        self._newest: int | None = None

    def run(self, targets: Collection[Target]) -> Searched:
        """
        Return what is found in the topics.

        Raises:
            KafkaException: Kafka does not answer.
        """
        with self._consumer() as consumer:
            numbers = self._partitions(consumer, targets)
            there = [each for each in targets if each.topic in numbers]
            for turn in range(max((len(each.spans) for each in there), default=0)):
                left = [each for each in there if self._is_open(each, turn)]
                self._read(consumer, self._stretches(consumer, left, turn, numbers))
        self._home.sort(key=lambda each: each.timestamp)
        self._found.left_out += len(self._home[: -self._most])
        self._found.records += self._home[-self._most :]
        return self._found

    def _is_open(self, target: Target, turn: int) -> bool:
        return turn < len(target.spans) and not (target.first and target.topic in self._seen)

    def _partitions(self, consumer: Consumer, targets: Collection[Target]) -> dict[str, list[int]]:
        """Return the partitions of the topics that are there, and say which are not."""
        known = consumer.list_topics(timeout=_SECONDS).topics
        found: dict[str, list[int]] = {}
        for target in targets:
            topic = target.topic
            # A topic that we may not see looks as if it were not there, until it is named.
            each = known.get(topic) or consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
            if each.error is None:
                found[topic] = sorted(each.partitions)
            elif each.error.code() in FORBIDDEN:
                self._fail(topic, told(each.error, right("Read", "topic", topic)))
            elif each.error.code() not in _MISSING:
                self._fail(topic, each.error.str())
            elif target.needed:
                self._fail(topic, f"there is no topic {topic!r} that we may see")
        return found

    def _stretches(
        self,
        consumer: Consumer,
        targets: Sequence[Target],
        turn: int,
        numbers: Mapping[str, Sequence[int]],
    ) -> dict[tuple[str, int], tuple[int, _Stretch]]:
        """Return where to begin in each partition, and how far to read."""
        wanted: dict[tuple[str, int], _Stretch] = {}
        asked: list[TopicPartition] = []
        for target in targets:
            span = target.spans[turn]
            until = span.until
            if turn == len(target.spans) - 1 > 0 and self._newest is not None and target.first:
                until = min(until or self._newest, max(span.first, self._newest)) + _AFTERWARDS_MS
            every = numbers[target.topic]
            if target.key:
                every = [partition_of(target.key, len(every))]
            self._look(target.topic, span.first, until)
            for number in every:
                wanted[target.topic, number] = _Stretch(target, until, span.first)
                asked.append(TopicPartition(target.topic, number, span.first))
        if not asked:
            return {}
        answers = consumer.offsets_for_times(asked, timeout=_SECONDS)
        found: dict[tuple[str, int], tuple[int, _Stretch]] = {}
        for place in answers:
            if place.error is not None:
                self._fail(place.topic, told(place.error, right("Read", "topic", place.topic)))
            elif place.offset >= 0:
                each = place.topic, place.partition
                found[each] = place.offset, wanted[each]
        return found

    def _look(self, topic: str, first: int, until: int | None) -> None:
        end = datetime.now(UTC) if until is None else _time(until)
        before = self._found.looked.get(topic)
        since = _time(first)
        if before is not None:
            since = min(since, before.since or since)
            end = max(end, before.until or end)
        self._found.looked[topic] = LookedAt(f"topic/{topic}", since, min(end, datetime.now(UTC)))

    def _read(
        self, consumer: Consumer, stretches: dict[tuple[str, int], tuple[int, _Stretch]]
    ) -> None:
        """Read until each partition has ended or is past its time."""
        if not stretches:
            return
        open_ = {each: stretch for each, (_, stretch) in stretches.items()}
        consumer.assign([TopicPartition(*each, at) for each, (at, _) in stretches.items()])
        while open_:
            done: set[tuple[str, int]] = set()
            for message in consumer.consume(_CHUNK, _POLL_SECONDS):
                each = str(message.topic()), int(message.partition() or 0)
                error = message.error()
                if error is not None:
                    done |= self._erred(each, error, open_)
                elif each in open_ and each not in done and self._take(open_[each], message):
                    done.add(each)
            gone = {
                each
                for each, stretch in open_.items()
                if each in done or (stretch.target.first and stretch.target.topic in self._seen)
            }
            if time.monotonic() > self._deadline and open_.keys() - gone:
                self._cut(open_, gone)
                break
            for each in gone:
                del open_[each]
            if gone and open_:
                # A pause would outlive the assignment, and the next turn would read nothing.
                consumer.incremental_unassign([TopicPartition(*each) for each in gone])
        consumer.unassign()

    def _take(self, stretch: _Stretch, message: Any) -> bool:  # noqa: ANN401  # confluent-kafka has no types of its own
        """Take a record; return whether the stretch ends with it."""
        at = max(0, _written(message))
        stretch.at = max(stretch.at, at)
        if stretch.until is not None and at > stretch.until:
            return True
        if self._matches(stretch.target.role, message):
            kind = of_topic(Record, self._ids.get(message.topic()))
            record = _found(message, kind)
            self._keep(record, stretch.target.role)
            self._seen.add(record.topic)
            if stretch.target.first:
                self._newest = at
                return True
        return False

    def _keep(self, record: Record, role: Role) -> None:
        if role != "home":
            self._found.records.append(record)
            return
        self._home.append(record)
        if len(self._home) > 2 * self._most:
            self._home.sort(key=lambda each: each.timestamp)
            self._found.left_out += len(self._home) - self._most
            del self._home[: -self._most]

    def _erred(
        self, each: tuple[str, int], error: KafkaError, open_: Mapping[tuple[str, int], _Stretch]
    ) -> set[tuple[str, int]]:
        """Return the partitions that end with an error, and say why if it is no end."""
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
            return {each}
        if each in open_ and (error.code() in OF_RECORD or error.code() in FORBIDDEN | _MISSING):
            topic = each[0]
            said = told(error, right("Read", "topic", topic))
            self._fail(topic, f"partition {each[1]} cannot be read to its end: {said}")
            return {each}
        if not error.retriable() and error.code() != OF_GROUP and not _passes(error):
            raise KafkaException(error)
        return set()

    def _cut(
        self, open_: Mapping[tuple[str, int], _Stretch], gone: Collection[tuple[str, int]]
    ) -> None:
        """Say which topics were not read to their ends."""
        left: dict[str, int] = {}
        for each, stretch in open_.items():
            if each not in gone:
                left[each[0]] = min(left.get(each[0], stretch.at), stretch.at)
        for topic, at in left.items():
            self._fail(
                topic,
                f"it was read up to {_time(at)}, and {self._seconds:g} s were over: narrow the "
                "search by --topic, --since or --until",
            )
            self._found.looked[topic] = self._found.looked[topic]._replace(until=_time(at))

    def _fail(self, topic: str, error: str) -> None:
        failure = PartFailure(f"topic/{topic}", error)
        if failure not in self._found.failures:
            self._found.failures.append(failure)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        with reader(self._kafka) as consumer:
            yield consumer


@contextmanager
def reader(kafka: Mapping[str, str], group: str = GROUP) -> Iterator[Consumer]:
    """Yield a client that reads what is committed, joins no group and commits nothing."""
    consumer = client_of(
        Consumer,
        {
            **CHECKED,
            **for_client(kafka),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        },
        _log,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def record_at(kafka: Mapping[str, str], topic: str, partition: int, offset: int) -> Record | None:
    """
    Return the record at a place, without its value; None: it is not there.

    Raises:
        KafkaException: Kafka does not answer, or the topic cannot be read.
    """
    with reader(kafka) as consumer:
        place = TopicPartition(topic, partition, offset)
        metadata = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
        if metadata.error is not None:
            if metadata.error.code() in _MISSING:
                return None
            raise KafkaException(metadata.error)
        if partition not in metadata.partitions:
            return None
        first, end = consumer.get_watermark_offsets(place, timeout=_SECONDS)
        if not first <= offset < end:
            return None
        consumer.assign([place])
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found = _found(message)
                return found if found.offset == offset else None
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                return None
            if not error.retriable() and error.code() != OF_GROUP and not _passes(error):
                raise KafkaException(error)
    return None


def committed(
    kafka: Mapping[str, str], group: str, partitions: Collection[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """
    Return what a group has committed: offset and metadata; -1001: nothing.

    Raises:
        KafkaException: Kafka does not say.
    """
    with reader(kafka, group) as consumer:
        asked = [TopicPartition(*each) for each in sorted(partitions)]
        found = require_answers(consumer.committed(asked, timeout=_SECONDS))
    return {(each.topic, each.partition): (each.offset, each.metadata) for each in found}


_PASSING = {
    KafkaError._TRANSPORT,  # noqa: SLF001  # the names librdkafka gives them
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
}


def _passes(error: KafkaError) -> bool:
    return error.code() in _PASSING


def _found(message: Any, kind: type[Record] = Record) -> Record:  # noqa: ANN401  # as above
    """Return a record without its value, with its time in milliseconds, or -1 without one."""
    return kind(*fields_of(message))._replace(value=None, timestamp=_written(message))


def _written(message: Any) -> int:  # noqa: ANN401  # as above
    at = milliseconds(message.timestamp()[1])
    return -1 if at is None else at


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)
