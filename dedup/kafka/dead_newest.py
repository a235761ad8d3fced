"""Read a dead-letter topic from its end: the newest letters first, no more than are wanted."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappush, heappushpop
from typing import NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, TopicPartition

from dedup.kafka.dead_topic import DeadTopic, kafka_errors
from dedup.retries.letter import At, Letter, Which, is_fence, letter, resolved, shortened
from dedup.rules.record import Record
from outbox.errors import DovecoteError
from outbox.kafka import fields_of
from outbox.kafka_errors import require_answers

MOST_LOOKED = 200_000
"""The most records of a topic that a list looks at."""

_SECONDS = 30.0
_POLL_SECONDS = 0.5
_CHUNK = 500
# The most records of a round, whose letters are in memory together.
_MOST_CHUNK = 5_000
# The records after a stretch were read before: few of them are fetched once more.
_AHEAD = {"queued.min.messages": 1_000, "queued.max.messages.kbytes": 4_096}
_MOST_BYTES = 2_000
_MOST_HEADERS = 100

Order: TypeAlias = tuple[datetime, At]
"""The order of letters: the newest have the greatest."""


class Found(NamedTuple):
    """One letter, and its record with long texts cut."""

    letter: Letter
    record: Record

    @property
    def order(self) -> Order:
        """Its place among others."""
        return self.letter.died_at, self.letter.at


@dataclass
class Newest:
    """The letters that were found, and how much was looked at."""

    found: list[Found] = field(default_factory=list)
    """The newest first."""
    looked: int = 0
    """Records."""
    whole: bool = True
    """Whether everything was looked at that may be meant, or enough was found."""
    oldest: datetime | None = None
    """The time of the oldest record that was looked at."""


def newest(
    topic: DeadTopic,
    which: Which,
    most: int,
    *,
    before: Order | None = None,
    look: int = MOST_LOOKED,
) -> Newest:
    """
    Return the newest `most` of the selected letters that are not resolved.

    `before`: only letters that are older. At most `look` records are looked at, evenly from the
    end of each partition.

    Raises:
        DovecoteError: the topic cannot be read.
    """
    reader = _Reader(topic, which, look)
    heap: list[tuple[Order, Found]] = []
    counts: dict[int, int] = {}
    with kafka_errors(topic.topic), topic.consumer(**_AHEAD) as consumer:
        reader.begin(consumer)
        while numbers := [each for each in reader.open if counts.get(each, 0) < most]:
            if reader.read >= look:
                reader.told.whole = False
                break
            for each in reader.round(consumer, numbers):
                if before is not None and each.order >= before:
                    continue
                number = each.letter.at[0]
                counts[number] = counts.get(number, 0) + 1
                if len(heap) < most:
                    heappush(heap, (each.order, each))
                else:
                    heappushpop(heap, (each.order, each))
    reader.told.found = [each for _, each in sorted(heap, reverse=True)]
    return reader.told


def places(topic: DeadTopic, which: Which) -> Iterator[Letter]:
    """
    Yield all of the selected letters that are not resolved, in no order.

    They take no memory here, however many they are.

    Raises:
        DovecoteError: the topic cannot be read.
    """
    reader = _Reader(topic, which, None)
    with kafka_errors(topic.topic), topic.consumer(**_AHEAD) as consumer:
        reader.begin(consumer)
        while reader.open:
            for each in reader.round(consumer, list(reader.open)):
                yield each.letter


class _Reader:
    """Reads stretches of partitions, each before the one that was read last."""

    def __init__(self, topic: DeadTopic, which: Which, look: int | None) -> None:
        self._topic, self._which, self._look = topic, which, look
        self._gone: dict[int, set[int]] = {}
        self._size = _CHUNK
        self.read = 0
        """Records, and Dovecote's own notes."""
        self.told = Newest()
        self.open: dict[int, tuple[int, int]] = {}
        """The offsets of each partition that are still to be read: the first, and the end."""

    def begin(self, consumer: Consumer) -> None:
        begins = self._topic.begins(consumer, self._which.since)
        for place in require_answers(begins):
            low, high = consumer.get_watermark_offsets(place, timeout=_SECONDS)
            first = high if place.offset < 0 else max(low, place.offset)
            if first < high:
                self.open[place.partition] = first, high

    def round(self, consumer: Consumer, numbers: list[int]) -> Iterator[Found]:
        """Read a stretch of each of these partitions, and yield the letters in it that stand."""
        size = self._size // len(numbers) + 1
        if self._look is not None:
            size = min(size, max(1, self._look - self.read) // len(numbers) + 1)
        self._size = min(2 * self._size, _MOST_CHUNK)
        stretches = {
            each: (max(self.open[each][0], self.open[each][1] - size), self.open[each][1])
            for each in numbers
        }
        read: dict[int, list[tuple[int, int | None, Found | None]]] = {
            each: [] for each in numbers
        }
        for record in self._records(consumer, stretches):
            read[record.partition].append(self._seen(record))
        for number, (start, _) in stretches.items():
            yield from self._standing(number, read.pop(number))
            self.open[number] = self.open[number][0], start
            if start <= self.open[number][0]:
                del self.open[number]

    def _seen(self, record: Record) -> tuple[int, int | None, Found | None]:
        """Return a record's offset, the letter that it resolves, and the one that it is."""
        gone = resolved(record)
        if gone is not None:
            return record.offset, gone[1], None
        one = letter(record)
        meant = self._which.takes(one, record)
        return record.offset, None, Found(shortened(one), cut(record)) if meant else None

    def _standing(
        self, number: int, read: list[tuple[int, int | None, Found | None]]
    ) -> Iterator[Found]:
        resolved_ = self._gone.setdefault(number, set())
        for offset, gone, found in sorted(read, key=lambda each: -each[0]):
            if gone is not None:
                if gone < offset:
                    resolved_.add(gone)
            elif offset in resolved_:
                resolved_.discard(offset)
            elif found is not None:
                yield found

    def _records(
        self, consumer: Consumer, stretches: dict[int, tuple[int, int]]
    ) -> Iterator[Record]:
        """Yield the records of stretches of partitions."""
        name = self._topic.topic
        begins = [TopicPartition(name, number, at) for number, (at, _) in stretches.items()]
        # Nothing is paused when a stretch has ended: the client may lose an assignment after a
        # pause (librdkafka 5591), and reads little more of a partition than is wanted.
        consumer.assign(begins)
        open_, deadline = set(stretches), time.monotonic() + _SECONDS
        while open_:
            messages = consumer.consume(_CHUNK, _POLL_SECONDS)
            if messages:
                deadline = time.monotonic() + _SECONDS
            elif time.monotonic() > deadline:
                msg = f"a part of topic {name!r} was not reached: the broker is silent"
                raise DovecoteError(msg)
            moved: set[int] = set()
            for message in messages:
                number, error = message.partition() or 0, message.error()
                if number not in open_ or number in moved:
                    continue
                if error is None:
                    record = Record(*fields_of(message))
                    if record.offset >= stretches[number][1]:
                        open_.discard(number)
                        continue
                    self._note(record)
                    yield record
                    if record.offset == stretches[number][1] - 1:
                        open_.discard(number)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    open_.discard(number)
                else:
                    moved |= self._topic.step_over(consumer, message, error)

    def _note(self, record: Record) -> None:
        """Count a record that was looked at."""
        self.read += 1
        if not is_fence(record):
            self.told.looked += 1
            at = letter(record).died_at
            self.told.oldest = min(at, self.told.oldest or at)


def cut(record: Record) -> Record:
    """Return a record without the rest of what is long in it."""
    headers = [
        (name[:_MOST_BYTES], None if value is None else value[:_MOST_BYTES])
        for name, value in record.headers[:_MOST_HEADERS]
    ]
    return record._replace(
        key=None if record.key is None else record.key[:_MOST_BYTES],
        value=None if record.value is None else record.value[:_MOST_BYTES],
        headers=headers,
    )
