"""Read a dead-letter topic, and requeue or drop its letters, each once."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from dedup.retries import copies
from dedup.retries.letter import Action, Letter, Which, require_one_source, resolution, standing
from outbox.envelope import RESOLVES, Record
from outbox.errors import DovecoteError
from outbox.kafka import PARTITIONER, headers_of
from outbox.secrets import fresh_all

_SECONDS = 30.0
_CHUNK = 500
_POLL_SECONDS = 0.5
# Within this, the leader of a partition reports what is committed there.
_PATIENCE_SECONDS = 2.0
_NONCE_KEY = b"dovecote.fence"


class _Stale(Exception):
    """The broker that answers lacks committed records."""


class DeadTopic:
    """
    One dead-letter topic.

    Nothing is deleted there: a later record reports the fate of a letter. One transaction writes
    that record and the requeued copy. If two operators work at once, the later one fences the
    earlier one.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        self._kafka, self._topic = dict(kafka), topic

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
        with _kafka_errors():
            return standing(self._records(which.since, None), which)

    def record(self, letter: Letter) -> Record:
        """Return a letter's record from the topic."""
        with _kafka_errors():
            return next(self._whole([letter]))

    def resolve(self, which: Which, action: Action, to: Callable[[Letter], str]) -> list[Letter]:
        """
        Requeue or drop the selected letters, and return them.

        Letters with the same key are requeued in their order.

        Raises:
            BadSettings: an id is that of several events; nothing was done.
            DovecoteError: Kafka cannot be reached, or another operator interfered. Everything done
                until then stays done, and the same command does the rest.
        """
        with _kafka_errors(), self._producer() as producer:
            # Any earlier operator is fenced now: everything that it did is in the topic.
            letters = self._after(self._fence(producer), which)
            require_one_source(letters, which)
            targets = {letter.at: to(letter) for letter in letters} if action != "dropped" else {}
            whole = self._whole(letters) if targets else iter(())
            for start in range(0, len(letters), _CHUNK):
                with _transaction(producer):
                    for letter in letters[start : start + _CHUNK]:
                        if targets:
                            copy = copies.requeued(next(whole))
                            where = targets[letter.at]
                            _produce(producer, where, copy.key, copy.value, copy.headers)
                        _produce(
                            producer,
                            self._topic,
                            letter.key,
                            None,
                            resolution(letter, action),
                            partition=letter.at[0],
                        )
        return letters

    def _fence(self, producer: Producer) -> bytes:
        """Commit a record to every partition that resolves nothing, and return its nonce."""
        nonce = f"nothing {secrets.token_hex(8)}".encode()
        with self._consumer() as consumer, _transaction(producer):
            for number in self._partitions(consumer):
                headers = [(RESOLVES, nonce)]
                _produce(producer, self._topic, _NONCE_KEY, None, headers, partition=number)
        return nonce

    def _after(self, nonce: bytes, which: Which) -> list[Letter]:
        """
        Return the selected letters, read from brokers that have the record with `nonce`.

        A broker that was cut off from the others may still answer as a partition's leader, from a
        log that lacks resolutions: letters would be requeued again.
        """
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                return standing(self._records(which.since, nonce), which)
            except _Stale as error:
                if time.monotonic() > deadline:
                    msg = f"{error}; nothing was requeued or dropped: run the command again"
                    raise DovecoteError(msg) from error

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        producer = Producer(
            {
                **fresh_all(self._kafka),
                "transactional.id": f"dovecote.dead.{self._topic}",
                "message.max.bytes": 2_000_000,
                **PARTITIONER,
            }
        )
        producer.init_transactions(_SECONDS)
        yield producer

    def _records(self, since: datetime | None, nonce: bytes | None) -> Iterator[Record]:
        """
        Yield the topic's records from `since` to `nonce`, or to its end as a broker reports it.
        """
        with self._consumer() as consumer:
            starts = self._starts(consumer, since)
            consumer.assign(starts)
            open_ = {each.partition for each in starts if nonce is None or each.offset >= 0}
            yield from self._until_end(consumer, open_, nonce)

    def _partitions(self, consumer: Consumer) -> list[int]:
        metadata = consumer.list_topics(self._topic, timeout=_SECONDS).topics[self._topic]
        if metadata.error is not None:
            msg = f"topic {self._topic!r} cannot be read: {metadata.error.str()}"
            raise DovecoteError(msg)
        return list(metadata.partitions)

    def _starts(self, consumer: Consumer, since: datetime | None) -> list[TopicPartition]:
        places = [TopicPartition(self._topic, each, 0) for each in self._partitions(consumer)]
        if since is None:
            return places
        for place in places:
            place.offset = int(since.timestamp() * 1000)
        found: list[TopicPartition] = consumer.offsets_for_times(places, timeout=_SECONDS)
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
            if time.monotonic() > deadline and not messages:
                raise self._silent(ended=ended)
            for message in messages:
                error, deadline = message.error(), time.monotonic() + _SECONDS
                if error is None:
                    record = _record(message)
                    if nonce is not None and (RESOLVES, nonce) in record.headers:
                        open_.discard(record.partition)
                    yield record
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # librdkafka's name
                    if nonce is None:
                        open_.discard(message.partition())
                    else:
                        deadline, ended = time.monotonic() + _PATIENCE_SECONDS, True
                elif not error.retriable():
                    raise KafkaException(error)

    def _silent(self, *, ended: bool) -> Exception:
        if ended:
            return _Stale(
                f"a broker that was cut off from the others answers for topic {self._topic!r}"
            )
        return DovecoteError(
            f"the end of topic {self._topic!r} was not reached: the broker is silent"
        )

    def _whole(self, letters: Sequence[Letter]) -> Iterator[Record]:
        """Yield the records of letters, which are in the order of the topic."""
        with self._consumer() as consumer:
            for partition, group in groupby(letters, lambda letter: letter.at[0]):
                wanted = list(group)
                consumer.assign([TopicPartition(self._topic, *wanted[0].at)])
                records = self._until_end(consumer, {partition})
                for letter in wanted:
                    found = next((each for each in records if each[1:3] == letter.at), None)
                    if found is None:
                        msg = f"letter {letter.id} is gone: the topic no longer keeps it"
                        raise DovecoteError(msg)
                    yield found

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                **fresh_all(self._kafka),
                "group.id": "dovecote-dead",  # required by the client, but not used
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()


@contextmanager
def _transaction(producer: Producer) -> Iterator[None]:
    """Commit at the end of the block, or abort: an open transaction would hold up readers."""
    producer.begin_transaction()
    try:
        yield
        producer.commit_transaction(_SECONDS)
    except BaseException:
        # If Kafka refuses that as well, the transaction ends by itself; the first error is
        # reported.
        with suppress(KafkaException):
            producer.abort_transaction(_SECONDS)
        raise


def _produce(  # noqa: PLR0917  # what a record is
    producer: Producer,
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Any,  # noqa: ANN401  # pairs, as the envelope makes them
    partition: int = -1,
) -> None:
    try:
        producer.produce(topic, value, key, headers=headers, partition=partition)
    except BufferError:
        # Nobody else empties the queue.
        producer.poll(1.0)
        producer.produce(topic, value, key, headers=headers, partition=partition)
    producer.poll(0)


def _record(message: Any) -> Record:  # noqa: ANN401  # confluent-kafka has no types of its own
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        headers_of(message),
    )


@contextmanager
def _kafka_errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        what = error.args[0]
        if what.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}:  # noqa: SLF001  # librdkafka's name
            msg = "somebody else has just begun to requeue or drop letters of this topic"
            raise DovecoteError(msg) from error
        msg = f"Kafka: {what.str()}"
        raise DovecoteError(msg) from error
