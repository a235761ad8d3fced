"""Write copies of records to retry and dead-letter topics, and return once the broker has them."""

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dedup.retries.aside import Outage
from dedup.retries.copies import Copy, Unwritable, refused
from dovecote.process.topics import most_bytes
from outbox.errors import DovecoteError, NoClient, NoToken
from outbox.kafka import MOST_BYTES, PARTITIONER, kafka_logger, number
from outbox.kafka_errors import CLIENT_ERRORS, right, said_by_client, told
from outbox.tokens.source import lasting

_log = logging.getLogger("dovecote.consumer.retries")
_client_log = kafka_logger("dovecote.consumer.kafka")

# For so long nobody else tries a topic that has just failed: each try blocks a handler's thread.
_REST_SECONDS = 1.0
_POLL_SECONDS = 0.1
# For so long the limit of a topic is believed to be what it was.
_KNOWN_SECONDS = 60.0
_TOO_LARGE = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
}
_OVER = {
    KafkaError._FATAL,  # noqa: SLF001  # the names librdkafka gives them
    KafkaError._PURGE_QUEUE,  # noqa: SLF001
    KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
}
"""Errors of records that were sent with a producer which had come to its end."""
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # the name librdkafka gives it
}


class Letters:
    """
    A thread-safe producer for failed records.

    A send in doubt is an `Outage`: the record may be on its topic then, and is sent there once
    more, with the same id and round.
    """

    def __init__(self, kafka: Mapping[str, str], *, timeout: float = 5.0) -> None:
        self._properties: dict[str, str | int | bool] = {
            "client.id": "dovecote-consumer",
            "linger.ms": 5,
            "topic.metadata.propagation.max.ms": 2_000,
            "retry.backoff.max.ms": 500,
            "reconnect.backoff.max.ms": 1_000,
            **kafka,
            "message.timeout.ms": int(timeout * 1000),
            "acks": "all",
            "enable.idempotence": True,
            # A topic's own limit holds. Each record goes alone, so that none is refused for what
            # lies beside it.
            "message.max.bytes": max(MOST_BYTES, number(kafka.get("message.max.bytes", 0))),
            "batch.num.messages": 1,
            # librdkafka's default differs from Java's, and would put a key on another partition.
            **PARTITIONER,
        }
        self._kafka, self._timeout = kafka, timeout
        self._limits: dict[str, tuple[float, int | None]] = {}
        self._lock = threading.Lock()
        self._down: dict[str, tuple[float, str]] = {}
        self._ending = threading.Event()
        self._made: Producer | None = None
        self._why: KafkaError | None = None
        """Why the last producer came to its end; its own calls only say that it did."""
        self._poller = threading.Thread(target=self._poll, name="letters", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, topic: str, copy: Copy) -> None:
        """
        Send a copy, and return once `topic` has it.

        Raises:
            Outage: it is not certain to have it; the message says why.
            Unwritable: the record is too large for it.
        """
        self._require_up(topic)
        sent = _Sent()
        try:
            self._producer().produce(
                topic,
                copy.value,
                copy.key,
                headers=copy.headers,  # type: ignore[arg-type]  # lists are invariant
                on_delivery=sent.report,
            )
        except BufferError as error:
            raise self._outage(topic, "the producer's queue is full") from error
        except (NoClient, NoToken) as error:
            raise self._outage(topic, str(error)) from error
        except KafkaException as error:
            raise self._explained(topic, copy, error.args[0]) from error
        if not sent.done.wait(self._timeout + 1.0):
            raise self._outage(topic, "the broker has not answered")
        if sent.error is not None:
            raise self._explained(topic, copy, sent.error)
        with self._lock:
            self._down.pop(topic, None)

    def close(self) -> None:
        """Close the producer; a record that is still unsent was never reported as sent."""
        self._ending.set()
        if self._poller.is_alive():
            self._poller.join()
        # Do not keep it: it would go on asking for brokers that may be gone.
        producer, self._made = self._made, None
        if producer is not None:
            producer.purge()
            with suppress(*CLIENT_ERRORS):
                producer.poll(0)

    def _producer(self) -> Producer:
        """Return the producer, made on first use."""
        with self._lock:
            if self._made is None:
                self._made = lasting(Producer, self._properties, _client_log)
                if not self._poller.is_alive():
                    self._poller.start()
            return self._made

    def _poll(self) -> None:
        while not self._ending.is_set():
            with self._lock:
                producer = self._made
            if producer is None:  # the next record makes one
                self._ending.wait(_POLL_SECONDS)
                continue
            try:
                producer.poll(_POLL_SECONDS)
            except CLIENT_ERRORS as error:
                # Fatal errors are raised here, once.
                self._renew(producer, said_by_client(error) or error)

    def _renew(self, ended: Producer, why: KafkaError | Exception) -> None:
        self._why = why if isinstance(why, KafkaError) else None
        _log.warning("the producer is made anew: %s", why)
        # Otherwise somebody would wait for what is on its way until its time is over.
        ended.purge()
        with suppress(*CLIENT_ERRORS):
            ended.poll(0)
        with self._lock:
            self._made = None

    def _require_up(self, topic: str) -> None:
        with self._lock:
            until, reason = self._down.get(topic, (0.0, ""))
        if time.monotonic() < until:
            raise Outage(reason)

    def _explained(self, topic: str, copy: Copy, error: KafkaError) -> DovecoteError:
        if error.code() in _TOO_LARGE:
            return Unwritable(refused(topic, copy, self._limit(topic), error.str()))
        if self._why is not None and (error.fatal() or error.code() in _OVER):
            error = self._why
        if error.code() in _MISSING:
            return self._outage(topic, f"{error.str()}; create it")
        # A user without this right on any topic gets no id for an idempotent producer.
        return self._outage(topic, told(error, right("Write", "topic", topic)))

    def _limit(self, topic: str) -> int | None:
        """Return the `max.message.bytes` of a topic, as it was within the last minute."""
        asked, found = self._limits.get(topic, (-_KNOWN_SECONDS, None))
        if time.monotonic() - asked > _KNOWN_SECONDS:
            found = most_bytes(self._kafka, [topic], timeout=self._timeout).get(topic)
            self._limits[topic] = time.monotonic(), found
        return found

    def _outage(self, topic: str, reason: str) -> Outage:
        text = f"topic {topic!r}: {reason}"
        with self._lock:
            self._down[topic] = (time.monotonic() + _REST_SECONDS, text)
        return Outage(text)


class _Sent:
    """The outcome of one record."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: KafkaError | None = None

    def report(self, error: KafkaError | None, _: Message) -> None:
        self.error = error
        self.done.set()
