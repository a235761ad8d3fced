"""Keep notes of operators on what is stepped over, in a topic of their own."""

import json
import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dedup.rules.unread import Place, SkipNote
from outbox.errors import DovecoteError
from outbox.kafka import kafka_logger
from outbox.kafka_errors import CLIENT_ERRORS, OF_GROUP, right, said_by_client, told
from outbox.tokens.source import client_of, for_client

TOPIC = "dovecote.skips"
"""Keeps the newest note on each offset; nothing else is written there."""

_READ, _WRITE = (right(operation, "topic", TOPIC) for operation in ("Read", "Write"))

_log = kafka_logger("dovecote.consumer.kafka")

_SECONDS = 5.0  # a consumer that ends waits for its look at the notes
_POLL_SECONDS = 0.5
# The topic is small, unless somebody fills it.
_MOST_SECONDS = 60.0
_MOST_OF_PLACE = 10
_MOST_BYTES = 100_000
_CONFIG = {"cleanup.policy": "compact"}
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001  # librdkafka's name
_THERE = KafkaError.TOPIC_ALREADY_EXISTS
_END = KafkaError._PARTITION_EOF  # noqa: SLF001  # as above


def notes_of(
    kafka: Mapping[str, str], group: str, places: Mapping[Place, str | None]
) -> list[SkipNote]:
    """
    Return a group's newest notes on places, at most 10 for each; none, if the topic is not there.

    `places` says of each the id of its topic, if that is known. Other notes are not kept in
    memory, however many there are.

    Raises:
        DovecoteError: they cannot be read.
    """
    consumer = client_of(
        Consumer,
        {
            **for_client(kafka),
            "group.id": "dovecote-skips",  # required by the client, but not used
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        },
        _log,
    )
    with closing(consumer):
        try:
            return _found(consumer, _partitions(consumer), group, places)
        except KafkaException as error:
            msg = f"topic {TOPIC!r}, of what is stepped over, cannot be read: "
            raise DovecoteError(msg + told(error.args[0], _READ)) from error


def _partitions(consumer: Consumer) -> set[int]:
    found = consumer.list_topics(TOPIC, timeout=_SECONDS).topics[TOPIC]
    if found.error is not None and found.error.code() not in _MISSING:
        raise KafkaException(found.error)
    return set(found.partitions)


def _found(
    consumer: Consumer, open_: set[int], group: str, places: Mapping[Place, str | None]
) -> list[SkipNote]:
    consumer.assign([TopicPartition(TOPIC, each, 0) for each in open_])
    found: dict[bytes | None, SkipNote] = {}
    waited, deadline = 0.0, time.monotonic() + _MOST_SECONDS
    while open_:
        message = consumer.poll(_POLL_SECONDS)
        waited += 0 if message is not None else _POLL_SECONDS
        if waited >= _SECONDS or time.monotonic() > deadline:
            why = "no answer" if waited >= _SECONDS else "too much is written there"
            msg = f"topic {TOPIC!r}, of what is stepped over, cannot be read: {why}"
            raise DovecoteError(msg)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.pop(message.key(), None)  # a later record of a key replaces it
            note = _note(message.value())
            if note is not None and note.group == group and _is_of(note, places):
                found[message.key()] = note
                if len(found) > _MOST_OF_PLACE * len(places):
                    del found[next(iter(found))]
        elif error.code() == _END:
            open_.discard(message.partition() or 0)
        elif not error.retriable() and error.code() != OF_GROUP:
            raise KafkaException(error)
    return [*found.values()]


def _note(value: bytes | None) -> SkipNote | None:
    return None if value is None or len(value) > _MOST_BYTES else SkipNote.decode(value)


def _is_of(note: SkipNote, places: Mapping[Place, str | None]) -> bool:
    return any(note.covers(place, id_) for place, id_ in places.items())


def keep(kafka: Mapping[str, str], note: SkipNote) -> None:
    """
    Write a note, and return once the brokers have it; create its topic if there is none.

    Raises:
        DovecoteError: it may not be there.
    """
    try:
        _make_topic(client_of(AdminClient, for_client(kafka), _log))
        producer = client_of(
            Producer,
            {
                **for_client(kafka),
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": int(_SECONDS * 1000),
            },
            _log,
        )
        failed: list[KafkaError] = []
        key, value = note.encode()
        producer.produce(
            TOPIC, value, key, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        left = producer.flush(_SECONDS + 1)
    except CLIENT_ERRORS as error:
        said = said_by_client(error)
        if said is None:
            raise
        msg = f"the note cannot be written to topic {TOPIC!r}: {told(said, _WRITE)}"
        raise DovecoteError(msg) from error
    if failed or left:
        why = told(failed[0], _WRITE) if failed else "Kafka does not answer"
        msg = f"the note cannot be written to topic {TOPIC!r}: {why}"
        raise DovecoteError(msg)


def _make_topic(admin: AdminClient) -> None:
    found = admin.list_topics(TOPIC, timeout=_SECONDS).topics[TOPIC]
    if found.error is None:
        return
    # One that we may not see may be there, too.
    wanted = [NewTopic(TOPIC, num_partitions=1, config=_CONFIG)]
    asked = admin.create_topics(wanted, request_timeout=_SECONDS)
    try:
        asked[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != _THERE:
            what = told(error.args[0], right("Create", "topic", TOPIC))
            msg = f"topic {TOPIC!r}, of what is stepped over, cannot be made: {what}"
            raise DovecoteError(msg) from error


def summary(note: SkipNote) -> str:
    """Return a note in words, for a log."""
    offsets = f"offset {note.first}"
    if note.until > note.first + 1:
        offsets = f"offsets {note.first} to {note.until - 1}"
    return (
        f"{note.topic}/{note.partition}: {offsets} cannot be read and are stepped over, as "
        f"{json.dumps(note.by)} decided at {note.at} ({json.dumps(note.why)})"
    )
