"""Write copies of dead letters to topics, together with what became of the letters."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from dedup.retries import copies
from dedup.retries.copies import Copy
from dedup.retries.letter import Action, Letter, resolution
from dovecote.process.topics import most_bytes, without_write
from outbox.errors import DovecoteError, InvalidEvent
from outbox.kafka import MOST_BYTES, PARTITIONER, kafka_logger, number
from outbox.kafka_errors import CLIENT_ERRORS, refusal_of, right, said_by_client, told
from outbox.tokens.source import client_of, for_client

_client_log = kafka_logger("dovecote.consumer.kafka")
_SECONDS = 30.0
_STEP_SECONDS = 0.5
_CHUNK = 500
_CHUNK_BYTES = 16_000_000
_SIZES = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
}

Move: TypeAlias = tuple[Letter, str, Copy | None]
"""A letter, the topic that it goes to, and what goes there; None: it is dropped."""


class TooLarge(Exception):
    """A topic refused the copy of a letter for its size."""

    def __init__(self, letter: Letter, why: str) -> None:
        super().__init__(why)
        self.letter = letter


class SizeLimits:
    """The largest records that topics take, asked for once."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka
        self._known: dict[str, int | None] = {}

    def of(self, topic: str) -> int | None:
        """Return a topic's `max.message.bytes`; None: Kafka does not tell us."""
        if topic not in self._known:
            self._known[topic] = most_bytes(self._kafka, [topic]).get(topic)
        return self._known[topic]

    def require(self, topic: str, copy: Copy) -> None:
        """
        Check that a topic may take a copy.

        Raises:
            InvalidEvent: it is larger than the topic takes.
        """
        limit = self.of(topic)
        packs = self._kafka.get("compression.type", self._kafka.get("compression.codec", "none"))
        # Compressed, it may be smaller than we know, so the broker decides.
        if limit is not None and packs == "none" and copies.size_of(copy) > limit:
            raise InvalidEvent(copies.refused(topic, copy, limit, ""))


class Mover:
    """Writes what becomes of the letters of one topic; a newer one fences this one."""

    def __init__(
        self, kafka: Mapping[str, str], topic: str, limits: SizeLimits, *, alone: bool = True
    ) -> None:
        """`alone`: copies are written, and each record goes alone."""
        self._kafka, self._topic, self._limits = kafka, topic, limits
        self._written: set[str] = set()
        self._refused: list[tuple[Move, KafkaError]] = []
        self._forbidden: list[KafkaError] = []
        given = {
            **for_client(kafka),
            "transactional.id": transactional_id(topic),
            # A topic's own limit holds. A copy goes alone, so that none is refused for what
            # lies beside it.
            **({"batch.num.messages": 1} if alone else {"linger.ms": 5}),
            "message.max.bytes": max(MOST_BYTES, number(kafka.get("message.max.bytes", 0))),
            **PARTITIONER,
        }
        self._producer = client_of(Producer, given, _client_log)
        self._producer.init_transactions(_SECONDS)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit at the end of the block, or abort: an open transaction would hold up readers."""
        self._producer.begin_transaction()
        try:
            yield
            # The commit would not say which topic was refused.
            self._deliver()
            self._producer.commit_transaction(_SECONDS)
        except BaseException as error:
            # If Kafka refuses that as well, the transaction ends by itself; the first error is
            # reported, unless the client has lost it.
            refused = refusal_of(partial(self._producer.abort_transaction, _SECONDS))
            if not isinstance(error, CLIENT_ERRORS):
                raise
            said = said_by_client(error, lambda: refused)
            if said is not None and _is_of_topic(said):
                raise self._refusal(said) from error
            if said is None:
                raise
            raise KafkaException(said) from error

    def mark(self, partition: int, key: bytes | None, headers: Any) -> None:  # noqa: ANN401  # pairs
        """Send a record without a value to a partition of the letters' topic."""
        given = {"partition": partition, "on_delivery": self._reported}
        self._send(self._topic, Copy(key, None, headers), **given)

    def write(self, moves: Sequence[Move], action: Action, by: str = "") -> None:
        """
        Send copies and what became of their letters, and wait for their delivery.

        Raises:
            TooLarge: a topic does not take one of them.
        """
        refused = self._refused = list[tuple[Move, KafkaError]]()
        for move in moves:
            letter, where, copy = move
            if copy is not None:
                self._send(where, copy, on_delivery=partial(self._reported, move=move))
            self.mark(letter.at[0], letter.key, resolution(letter, action, by))
        self._deliver()
        for (letter, where, copy), error in refused:
            if copy is not None:
                why = copies.refused(where, copy, self._limits.of(where), error.str())
                raise TooLarge(letter, why)

    def _deliver(self) -> None:
        """
        Wait until everything is delivered, or refused.

        Raises:
            DovecoteError: we may not write to a topic; the message says which right is missing.
        """
        deadline = time.monotonic() + _SECONDS
        while self._producer.flush(_STEP_SECONDS) and time.monotonic() < deadline:
            if self._refused or self._forbidden:
                break
        if self._forbidden:
            raise self._refusal(self._forbidden[0])

    def _refusal(self, error: KafkaError) -> DovecoteError:
        """Return why the transaction was refused, with each topic that lacks a right."""
        lacking = without_write(self._kafka, self._written)
        return DovecoteError(
            f"Kafka: {told(error, *(right('Write', 'topic', t) for t in lacking))}"
        )

    def _reported(self, error: KafkaError | None, _: object, *, move: Move | None = None) -> None:
        if error is None:
            return
        if _is_of_topic(error):
            self._forbidden.append(error)
        elif move is not None and error.code() in _SIZES:
            self._refused.append((move, error))

    def _send(self, topic: str, copy: Copy, **given: Any) -> None:  # noqa: ANN401  # the client's
        given["headers"] = copy.headers
        self._written.add(topic)
        try:
            self._producer.produce(topic, copy.value, copy.key, **given)
        except BufferError:
            # Nobody else empties the queue.
            self._producer.flush(_SECONDS)
            self._producer.produce(topic, copy.value, copy.key, **given)
        except KafkaException as error:
            # The client checks a record's size before it takes it, and a topic that it knows to
            # be refused.
            if error.args[0].code() not in _SIZES and not _is_of_topic(error.args[0]):
                raise
            given["on_delivery"](error.args[0], None)
        self._producer.poll(0)


def chunks(moves: Iterable[Move]) -> Iterator[list[Move]]:
    """Yield moves together that fit into one transaction."""
    chunk, size = list[Move](), 0
    for each in moves:
        more = 0 if each[2] is None else copies.size_of(each[2])
        if chunk and (len(chunk) >= _CHUNK or size + more > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += more
    if chunk:
        yield chunk


def transactional_id(topic: str) -> str:
    """Return the id under which letters of `topic` are moved: a newer mover fences this one."""
    return f"dovecote.dead.{topic}"


def _is_of_topic(error: KafkaError) -> bool:
    return error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
