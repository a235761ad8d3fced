"""Find out which offsets the client cannot read, and note that a group steps over them."""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from dedup.rules.unread import (
    MOST_TRIED,
    Place,
    SkipNote,
    Unread,
    covering,
    end_of_unread,
)
from dedup.unread.notes import keep, notes_of
from outbox.errors import DovecoteError
from outbox.kafka import kafka_logger, topic_id
from outbox.kafka_errors import right, told
from outbox.tokens.source import client_of, for_client

OF_RECORD = {
    KafkaError.INVALID_MSG,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    KafkaError._BAD_MSG,  # noqa: SLF001  # librdkafka's names
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001  # as above
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  # as above
    KafkaError._UNDERFLOW,  # noqa: SLF001  # as above
}
"""Errors about what is written at an offset."""

CHECKED = {"check.crcs": "true"}
"""Without it the client takes a batch with a wrong checksum for a sound one."""

_log = kafka_logger("dovecote.consumer.kafka")

_SECONDS = 10.0
# The client says nothing at all in the midst of some batches.
_WITHIN = -1
_POLL_SECONDS = 0.5
_END = KafkaError._PARTITION_EOF  # noqa: SLF001  # librdkafka's name
_RESET = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001  # as above
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # as above
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # as above
}


class Readable(DovecoteError):
    """A place can be read, or nothing is there."""


def skip(kafka: Mapping[str, str], group: str, place: Place, *, by: str, why: str) -> SkipNote:
    """
    Note that a group steps over the batch at a place, which cannot be read; return the note.

    Raises:
        Readable: it can be read, or is not there.
        DovecoteError: Kafka does not answer.
    """
    error, first, until = unread(kafka, place)
    note = SkipNote(
        group=group,
        topic=place.topic,
        partition=place.partition,
        first=first,
        until=until,
        topic_id=_id(kafka, place.topic),
        error=error,
        by=by,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        why=why,
    )
    keep(kafka, note)
    return note


def noted(
    kafka: Mapping[str, str], group: str, places: Mapping[Place, str | None]
) -> dict[Place, SkipNote]:
    """
    Return the note of a group for each place that has one and cannot be read.

    `places` says of each the id of its topic, if that is known. A note names a place, and does not
    decide where a batch ends: `until` is what we find there ourselves.

    Raises:
        DovecoteError: Kafka does not answer, or the notes cannot be read.
    """
    notes, found = notes_of(kafka, group, places), dict[Place, SkipNote]()
    for place, id_ in places.items():
        if (note := covering(notes, place, id_)) is not None:
            try:
                _, first, until = unread(kafka, place)
            except Readable as error:
                _log.debug("a note is not followed: %s", error)
            else:
                found[place] = replace(note, first=first, until=until)
    return found


def unread(kafka: Mapping[str, str], place: Place) -> tuple[str, int, int]:
    """
    Return why a place cannot be read, and where its batch begins and the next one does.

    Raises:
        Readable: it can be read, or is not there.
        DovecoteError: Kafka does not answer.
    """
    reader = _Reader(kafka, place)
    with closing(reader):
        low, end = reader.bounds()
        if not low <= place.offset < end:
            msg = f"{place} is not there: {place.topic}/{place.partition} has {low} to {end - 1}"
            raise Readable(msg)
        found = reader.read(place.offset)
        if found is None:
            msg = f"{place} can be read, so it is not stepped over"
            raise Readable(msg)
        until = end_of_unread(reader.read, place.offset, end)
    if until is None:
        msg = (
            f"{place} cannot be read ({found.error}), nor can the {MOST_TRIED} offsets after it: "
            "the log is damaged, so repair or restore it on its broker"
        )
        raise DovecoteError(msg)
    first = place.offset if found.offset < 0 else min(found.offset, place.offset)
    return found.error, first, until


def refused(kafka: Mapping[str, str], place: Place) -> str:
    """
    Return why a new client gets nothing of a partition from a place on; empty: it gets something.

    It asks from the nearest offset that is there. That the log ends there is something, too.
    """
    try:
        with closing(_Reader(kafka, place)) as reader:
            low, end = reader.bounds()
            found = reader.read(min(max(low, place.offset), end))
    except DovecoteError as error:
        return str(error)
    return "" if found is None else found.error


class _Silence:
    """Nothing came for a while, and no error."""


class _Reader:
    """Tries to read single offsets of a partition."""

    def __init__(self, kafka: Mapping[str, str], place: Place) -> None:
        self._topic, self._partition, _ = place
        self._right = right("Read", "topic", place.topic)
        self._broker = ""
        self._consumer = client_of(
            Consumer,
            {
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 100,
                # Nothing is wanted but the first record.
                "queued.max.messages.kbytes": 1_024,
                **CHECKED,
                **for_client(kafka),
                "group.id": "dovecote-skips",  # required by the client, but not used
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "error_cb": self._failed,
            },
            _log,
        )

    def close(self) -> None:
        self._consumer.close()

    def bounds(self) -> tuple[int, int]:
        """Return the earliest offset and the end."""
        place = TopicPartition(self._topic, self._partition)
        try:
            found: tuple[int, int] = self._consumer.get_watermark_offsets(place, _SECONDS)
        except KafkaException as error:
            if error.args[0].code() in _MISSING:
                msg = (
                    f"there is no {self._topic}/{self._partition} that we may see; if it is "
                    f"there, grant this user {self._right}, see docs/security.md"
                )
                raise Readable(msg) from error
            said = told(error.args[0], self._right)
            msg = f"{self._topic}/{self._partition} cannot be asked for: {said}"
            raise DovecoteError(msg) from error
        return found

    def read(self, offset: int) -> Unread | None:
        """
        Return why an offset cannot be read; None: it can be, or nothing is there.

        Raises:
            DovecoteError: Kafka does not answer.
        """
        found = self._tried(offset)
        if not isinstance(found, _Silence):
            return found
        # A quota, too, lets nothing come for a while. Then nothing comes from the end either.
        _, end = self.bounds()
        if isinstance(self._tried(end), _Silence):
            msg = (
                f"{self._topic}/{self._partition}: the broker sends nothing for {_SECONDS:g} s, "
                "from the end either; a quota may hold it back, so try again later"
            )
            raise DovecoteError(msg)
        return Unread(_WITHIN, f"nothing comes for {_SECONDS:g} s")

    def _tried(self, offset: int) -> "Unread | _Silence | None":
        self._broker = ""
        self._assign(offset)
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            message = self._consumer.poll(_POLL_SECONDS)
            if message is not None and message.topic() == self._topic:
                error = message.error()
                if error is None or error.code() == _END:
                    return None
                if error.code() in OF_RECORD:
                    first = message.offset()
                    return Unread(offset if first is None or first < 0 else first, error.str())
                if error.code() == _RESET:
                    self._assign(offset)  # the client had gone astray in an earlier batch
                elif not error.retriable():
                    said = told(error, self._right)
                    msg = f"{self._topic}/{self._partition}/{offset}: {said}"
                    raise DovecoteError(msg)
            if self._broker:
                return Unread(offset, self._broker)
        return _Silence()

    def _assign(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])

    def _failed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._BAD_MSG:  # noqa: SLF001  # the client's name for it
            self._broker = error.str()  # the whole answer was too large for the client


def _id(kafka: Mapping[str, str], topic: str) -> str | None:
    """Return the id of a topic; None: the broker has none, or does not tell us."""
    admin = client_of(AdminClient, for_client(kafka), _log)
    try:
        asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_SECONDS)
        return topic_id(asked[topic].result(_SECONDS).topic_id)
    except (KafkaException, TimeoutError) as error:
        _log.debug("the id of topic %s is not known: %s", topic, error)
        return None
