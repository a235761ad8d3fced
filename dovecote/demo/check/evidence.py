"""Ask the witnesses: the service's log in Postgres, and Kafka's topics."""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from dovecote.demo.check.records import Record, Row

_DEADLINE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_BATCH = 1_000


class EvidenceMissing(Exception):
    """A witness does not answer, or its answer cannot be understood."""


class Where(NamedTuple):
    """Addresses of the witnesses."""

    dsn: str
    bootstrap: str


def committed(where: Where) -> list[Row]:
    """Return the rows that the service committed, from its own log."""
    with psycopg.connect(where.dsn) as conn:
        found = conn.execute(
            'SELECT "row", event_id::text, type, flight, number FROM flight_ops.event_log'
        )
        return [Row(*fields) for fields in found]


def records(where: Where, topic: str) -> list[Record]:
    """
    Return all records of `topic` that a `read_committed` consumer sees, in order by partition.

    Raises:
        EvidenceMissing: a transaction is still open, and may hide later records.
    """
    # An open transaction hides all later records: only the log's true end shows them.
    with closing(_consumer(where, "read_uncommitted")) as consumer:
        partitions = _partitions(consumer, topic)
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_DEADLINE_SECONDS)[
                1
            ]
            for p in partitions
        }
    with closing(_consumer(where, "read_committed")) as consumer:
        consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
        found, reached = _read(consumer, partitions)
    for partition, end in ends.items():
        if reached[partition] < end:
            msg = (
                f"{topic}/{partition} can be read up to {reached[partition]} of {end}: "
                "a transaction is still open"
            )
            raise EvidenceMissing(msg)
    return sorted(map(_record, found), key=lambda record: (record.partition, record.offset))


def _consumer(where: Where, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": where.bootstrap,
            "group.id": "demo-check",  # the client needs a name; nothing is committed under it
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,  # nothing more comes: this only waits for the ends
        }
    )


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_DEADLINE_SECONDS).topics[topic]
    if found.error is not None:
        msg = f"topic {topic}: {found.error}"
        raise EvidenceMissing(msg)
    return sorted(found.partitions)


def _read(consumer: Consumer, partitions: Iterable[int]) -> tuple[list[Message], dict[int, int]]:
    """Return all messages, and where each partition ends for this consumer."""
    found: list[Message] = []
    ends: dict[int, int] = {}
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while unfinished := set(partitions) - ends.keys():
        if time.monotonic() > deadline:
            msg = f"not all records came within {_DEADLINE_SECONDS} s; missing: {unfinished}"
            raise EvidenceMissing(msg)
        for message in consumer.consume(_BATCH, _POLL_SECONDS):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # the name librdkafka gives it
                ends[message.partition()] = message.offset()  # type: ignore[index, assignment]  # an end has a place
            elif not error.retriable():
                raise KafkaException(error)
    return found, ends


def _record(message: Message) -> Record:
    key, value = message.key(), message.value()
    headers: Sequence[tuple[str, bytes | None]] = message.headers() or ()  # type: ignore[assignment]  # a consumer gives pairs of name and bytes
    return Record(
        topic=message.topic(),  # type: ignore[arg-type]  # what was consumed has a place
        partition=message.partition(),  # type: ignore[arg-type]  # likewise
        offset=message.offset(),  # type: ignore[arg-type]  # likewise
        key=None if key is None else key.decode(),
        value=value or b"",
        headers={name: text.decode() for name, text in headers if text is not None},
    )
