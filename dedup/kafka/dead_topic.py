"""Read a dead-letter topic, and requeue or drop its letters, each once."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from dedup.kafka.moving import Move, Mover, SizeLimits, TooLarge, chunks, transactional_id
from dedup.retries import copies
from dedup.retries.letter import (
    Action,
    At,
    Letter,
    Which,
    any_standing,
    first_standing,
    require_one_source,
    require_whole,
    standing,
)
from dedup.rules.unread import Place
from dedup.unread.probing import CHECKED, OF_RECORD, noted
from outbox.envelope import RESOLVES, Record
from outbox.errors import BadSettings, DovecoteError, InvalidEvent
from outbox.kafka import fields_of, kafka_logger
from outbox.kafka_errors import (
    CLIENT_ERRORS,
    OF_GROUP,
    require_answers,
    right,
    said_by_client,
    told,
)
from outbox.tokens.source import client_of, for_client

GROUP = "dovecote-dead"
"""Names those who read dead-letter topics; nothing is committed with it."""

_client_log = kafka_logger("dovecote.consumer.kafka")
_SECONDS = 30.0
_CHUNK = 500
_POLL_SECONDS = 0.5
# Within this, the leader of a partition reports what is committed there.
_PATIENCE_SECONDS = 2.0
_NONCE_KEY = b"dovecote.fence"


class _Stale(Exception):
    """The broker that answers lacks committed records."""


class Resolved(NamedTuple):
    """The selected letters, by what became of them."""

    done: list[Letter]
    left: list[tuple[Letter, str]]
    """Letters that could not be requeued, and why."""


class DeadTopic:
    """
    One dead-letter topic.

    Nothing is deleted there: a later record reports the fate of a letter. One transaction writes
    that record and the requeued copy. If two operators work at once, the later one fences the
    earlier one.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        self._kafka, self._topic = dict(kafka), topic
        self._limits = SizeLimits(self._kafka)

    @property
    def topic(self) -> str:
        """Its name."""
        return self._topic

    def letters(self, which: Which) -> list[Letter]:
        """
        Return the selected letters that are not resolved, in the order of the topic.

        Raises:
            DovecoteError: the topic cannot be read.
        """
        with kafka_errors(self._topic):
            return standing(self._records(which, None), which)

    def first(self, which: Which, most: int) -> tuple[list[Letter], int]:
        """
        Return the first `most` of these letters, and the number of all of them.

        Raises:
            DovecoteError: the topic cannot be read.
        """
        with kafka_errors(self._topic):
            found = first_standing(self._records(which, None), which, most)
            letters, others = found
            while len(letters) < most and others:
                # Some of the first ones are resolved, so later ones move up.
                found = first_standing(
                    self._records(which, None), which, most - len(letters), among=others
                )
                letters, others = sorted([*letters, *found.letters]), found.others
                if not found.letters:
                    break
            return letters, len(letters) + len(others)

    def record(self, letter: Letter) -> Record:
        """Return a letter's record from the topic."""
        with kafka_errors(self._topic):
            found = next(self._whole([letter]))[1]
        if found is None:
            msg = f"letter {letter.id} is gone: the topic no longer keeps it"
            raise DovecoteError(msg)
        return found

    def resolve(
        self,
        which: Which,
        action: Action,
        to: Callable[[Letter], str],
        *,
        read: Callable[[str], bool] = lambda _: False,
        most: int | None = None,
        by: str = "",
    ) -> Resolved:
        """
        Requeue or drop the selected letters, the first `most` of them, and return them.

        Letters with the same key are requeued in their order. A letter that lacks its value gets
        it back from the topic that has it, if `read` says that we may read that topic. A letter
        that cannot be requeued stays, and holds up no other. `by` names the person, in the topic.

        Raises:
            BadSettings: an id is that of several events; nothing was done.
            DovecoteError: Kafka cannot be reached, or another operator interfered. Everything done
                until then stays done, and the same command does the rest.
        """
        done, left = list[Letter](), dict[At, tuple[Letter, str]]()
        while True:
            try:
                with kafka_errors(self._topic):
                    alone = action != "dropped"
                    mover = Mover(self._kafka, self._topic, self._limits, alone=alone)
                    if not (done or left or any_standing(self._records(which, None), which)):
                        return Resolved([], [])  # a fence would be one more record, for nothing
                    # Any earlier operator is fenced now: everything that it did is in the topic.
                    found = self._after(self._fence(mover), which, most)
                    require_one_source(found, which)
                    letters = [each for each in found if each.at not in left]
                    moves: Iterable[Move] = ((letter, "", None) for letter in letters)
                    if action != "dropped":
                        moves = self._moves(letters, to, read, left)
                    for chunk in chunks(moves):
                        with mover.transaction():
                            mover.write(chunk, action, by)
                        done.extend(letter for letter, _, _ in chunk)
            except TooLarge as error:
                # Only a new producer goes on after that, and reads anew what is done by then.
                left[error.letter.at] = error.letter, str(error)
            else:
                return Resolved(done, list(left.values()))

    def _moves(
        self,
        letters: Sequence[Letter],
        to: Callable[[Letter], str],
        read: Callable[[str], bool],
        left: dict[At, tuple[Letter, str]],
    ) -> Iterator[Move]:
        """Yield what is to be written for each letter; add those that cannot go to `left`."""
        for letter, record in self._whole(letters):
            try:
                where = to(letter)
                copy = copies.requeued(self._restored(letter, record, read))
                self._limits.require(where, copy)
            except (BadSettings, InvalidEvent) as error:
                left[letter.at] = letter, str(error)
            else:
                yield letter, where, copy

    def _restored(
        self, letter: Letter, record: Record | None, read: Callable[[str], bool]
    ) -> Record:
        """
        Return a letter's record, with the value that it may lack.

        Raises:
            InvalidEvent: the record or the value is not to be had.
        """
        if record is None:
            msg = "the dead-letter topic no longer keeps it"
            raise InvalidEvent(msg)
        if not letter.without_value:
            return record
        found, place = None, None if letter.left is None else letter.left.place
        if place is not None:
            if not read(place[0]):
                msg = (
                    f"its value is at {place[1]}/{place[2]} of topic {place[0]!r}, which is not "
                    "in the settings"
                )
                raise InvalidEvent(msg)
            found = self._at(*place)
        return copies.restored(record, require_whole(letter, found))

    def _fence(self, mover: Mover) -> bytes:
        """Commit a record to every partition that resolves nothing, and return its nonce."""
        nonce = f"nothing {secrets.token_hex(8)}".encode()
        with self.consumer() as consumer, mover.transaction():
            for number in self.partitions(consumer):
                mover.mark(number, _NONCE_KEY, [(RESOLVES, nonce)])
        return nonce

    def _after(self, nonce: bytes, which: Which, most: int | None) -> list[Letter]:
        """
        Return the selected letters, read from brokers that have the record with `nonce`.

        A broker that was cut off from the others may still answer as a partition's leader, from a
        log that lacks resolutions: letters would be requeued again.
        """
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return first_standing(self._records(which, nonce), which, most).letters
            except _Stale as error:
                if time.monotonic() > deadline:
                    msg = f"{error}; nothing was requeued or dropped: run the command again"
                    raise DovecoteError(msg) from error

    def _records(self, which: Which, nonce: bytes | None) -> Iterator[Record]:
        """
        Yield the topic's records from the first that may be meant, to `nonce` or to its end.

        Where its end is, the broker that answers reports.
        """
        with self.consumer() as consumer:
            starts = self._starts(consumer, which)
            consumer.assign(starts)
            open_ = {each.partition for each in starts if nonce is None or each.offset >= 0}
            yield from self._until_end(consumer, open_, nonce)

    def partitions(self, consumer: Consumer) -> list[int]:
        """Return the numbers of its partitions."""
        metadata = consumer.list_topics(self._topic, timeout=_SECONDS).topics[self._topic]
        if metadata.error is not None:
            said = told(metadata.error, right("Read", "topic", self._topic))
            msg = f"topic {self._topic!r} cannot be read: {said}"
            raise DovecoteError(msg)
        return list(metadata.partitions)

    def _starts(self, consumer: Consumer, which: Which) -> list[TopicPartition]:
        places = [TopicPartition(self._topic, each, 0) for each in self.partitions(consumer)]
        if which.places is not None:
            # The note of what became of a letter lies after it.
            for place in places:
                offsets = [at for number, at in which.places if number == place.partition]
                place.offset = min(offsets, default=OFFSET_END)
            return places
        return self.begins(consumer, which.since)

    def begins(self, consumer: Consumer, since: datetime | None) -> list[TopicPartition]:
        """Return where each partition begins, or its first record of `since` or later."""
        places = [TopicPartition(self._topic, each, 0) for each in self.partitions(consumer)]
        if since is None:
            return places
        for place in places:
            place.offset = max(0, int(since.timestamp() * 1000))
        found = require_answers(consumer.offsets_for_times(places, timeout=_SECONDS))
        for place in found:
            place.offset = OFFSET_END if place.offset < 0 else place.offset
        return found

    def _until_end(
        self, consumer: Consumer, open_: set[int], nonce: bytes | None = None
    ) -> Iterator[Record]:
        """Yield records until all of the partitions have reached their end, or `nonce`."""
        deadline, ended = time.monotonic() + _SECONDS, False
        while open_:
            messages = consumer.consume(_CHUNK, _POLL_SECONDS)
            moved: set[int] = set()
            if time.monotonic() > deadline and not messages:
                raise self._silent(ended=ended)
            for message in messages:
                error, deadline = message.error(), time.monotonic() + _SECONDS
                if message.partition() in moved:
                    continue
                if error is None:
                    record = Record(*fields_of(message))
                    if nonce is not None and (RESOLVES, nonce) in record.headers:
                        open_.discard(record.partition)
                    yield record
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    if nonce is None:
                        open_.discard(message.partition())
                    else:
                        deadline, ended = time.monotonic() + _PATIENCE_SECONDS, True
                else:
                    moved |= self.step_over(consumer, message, error)

    def step_over(self, consumer: Consumer, message: Any, error: KafkaError) -> set[int]:  # noqa: ANN401  # confluent-kafka has no types of its own
        """
        Go on after a batch that cannot be read, if a note says so; return its partition, if any.

        Raises:
            DovecoteError: no note does.
            KafkaException: the error is another one, and does not pass by itself.
        """
        if error.code() not in OF_RECORD or message.topic() != self._topic:
            if error.retriable() or error.code() == OF_GROUP:
                return set()
            raise KafkaException(error)
        place = Place(self._topic, message.partition(), message.offset())
        note = noted(self._kafka, GROUP, {place: None}).get(place)
        if note is None:
            msg = (
                f"topic {self._topic!r} cannot be read at {place}: {error.str()}; step over it "
                f"with `skip {place}`, a command of `dovecote consume` and of `dovecote push`"
            )
            raise DovecoteError(msg)
        consumer.seek(TopicPartition(self._topic, place.partition, note.until))
        return {place.partition}

    def _silent(self, *, ended: bool) -> Exception:
        if ended:
            return _Stale(
                f"a broker that was cut off from the others answers for topic {self._topic!r}"
            )
        return DovecoteError(
            f"the end of topic {self._topic!r} was not reached: the broker is silent"
        )

    def _whole(self, letters: Sequence[Letter]) -> Iterator[tuple[Letter, Record | None]]:
        """Yield letters with their records; None: the topic no longer keeps it."""
        with self.consumer() as consumer:
            for partition, group in groupby(letters, lambda letter: letter.at[0]):
                wanted = list(group)
                consumer.assign([TopicPartition(self._topic, *wanted[0].at)])
                records = self._until_end(consumer, {partition})
                found = next(records, None)
                for letter in wanted:
                    while found is not None and found.offset < letter.at[1]:
                        found = next(records, None)
                    same = found is not None and found[1:3] == letter.at
                    yield letter, found if same else None

    def _at(self, topic: str, partition: int, offset: int) -> Record | None:
        """Return the record at a place; None: it is not there."""
        with self.consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            for record in self._until_end(consumer, {partition}):
                return record if record[1:3] == (partition, offset) else None
        return None

    @contextmanager
    def consumer(self, **more: str | int) -> Iterator[Consumer]:
        """Yield a client that sees what is committed; `more`: further properties of it."""
        given = {
            **CHECKED,
            **for_client(self._kafka),
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            **more,
        }
        consumer = client_of(Consumer, given, _client_log)
        try:
            yield consumer
        finally:
            consumer.close()


@contextmanager
def kafka_errors(topic: str) -> Iterator[None]:
    """Raise errors of the client as ones that say what to do."""
    try:
        yield
    except CLIENT_ERRORS as error:
        what = said_by_client(error)
        if what is None:
            raise
        if what.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}:  # noqa: SLF001  # librdkafka's name
            msg = "somebody else has just begun to requeue or drop letters of this topic"
            raise DovecoteError(msg) from error
        needed = right("Read", "topic", topic)
        if what.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            needed = right("Write", "transactional id", transactional_id(topic))
        msg = f"Kafka: {told(what, needed)}"
        raise DovecoteError(msg) from error
