"""Send to Kafka, and stop at the first record that the broker may not have taken."""

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from outbox.envelope import encode
from outbox.errors import BadSettings, NoClient
from outbox.event import Event
from outbox.kafka import PARTITIONER, kafka_logger
from outbox.kafka_errors import CLIENT_ERRORS, right, said_by_client, told
from outbox.tokens.identity import KEY, encoded, made, require_fit
from outbox.tokens.source import client_of, for_check, lasting

_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_log = kafka_logger("dovecote.producer.kafka")

FIXED: dict[str, str | bool] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Records after a failed one must not arrive before it has gone through the outbox. The
    # guarantee does not cover a record that times out, so none does: the waiting side watches the
    # clock.
    "enable.gapless.guarantee": "true",
    "message.timeout.ms": "0",
    # librdkafka's default differs from Java's, and would put a key on another partition.
    **PARTITIONER,
    "delivery.report.only.error": False,
}
"""Properties that the order and the safety of events depend on."""

_OTHER_NAMES = frozenset({"request.required.acks", "delivery.timeout.ms", "transactional.id"})

# Purging answers at once; a record without an answer by then is unsure.
_PURGE_SECONDS, _STEP = 5.0, 0.05
# Seconds for the first token of a process; meanwhile events go through the outbox.
_TOKEN = 2.0


def properties(given: Mapping[str, Any], *, events: int, size: int) -> dict[str, Any]:
    """
    Return the producer's configuration, for at most `events` events of `size` bytes together.

    Raises:
        BadSettings: `given` names a property that is fixed or unknown, or no brokers.
        NoClient: the process has no room for a client.
    """
    if wrong := (FIXED.keys() | _OTHER_NAMES) & given.keys():
        msg = (
            f"kafka: {', '.join(sorted(wrong))}: the producer's guarantees depend on it; leave it "
            "out"
        )
        raise BadSettings(msg)
    if not any(str(given.get(name, "")).strip(" ,") for name in _BROKERS):
        msg = "kafka: bootstrap.servers is missing: the brokers, as host:port, …"
        raise BadSettings(msg)
    defaults = {
        "client.id": "dovecote-producer",
        # Errors only: otherwise it warns, for each new producer, that a property is experimental.
        "log_level": "3",
        "compression.type": "lz4",
        # One request at a time collects whatever is sent in the meantime.
        "linger.ms": "1",
        # The broker's default; librdkafka's, 1000000, is below what `Limits` allow.
        "message.max.bytes": "1048588",
        # More would be as safe, but not in order: if a broker refuses the first of two requests to
        # a new partition, it still takes the second.
        "max.in.flight.requests.per.connection": "1",
        # Leave room for everything that waits: we have limits of our own.
        "queue.buffering.max.messages": str(events + 1),
        "queue.buffering.max.kbytes": str(size // 1024 + 2048),
        "retry.backoff.ms": "5",
        "retry.backoff.max.ms": "500",
        "reconnect.backoff.ms": "50",
        "reconnect.backoff.max.ms": "2000",
        "topic.metadata.propagation.max.ms": "5000",
    }
    found = {**defaults, **_with_identity(given), **FIXED}
    checked = for_check(found)
    checked.pop("bootstrap.servers", None)
    try:
        client_of(Producer, checked, _log)
    except NoClient as error:
        if not isinstance(said := error.__cause__, KafkaException):
            raise
        msg = f"kafka: {said.args[0].str()}"
        raise BadSettings(msg) from error
    return found


def _with_identity(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties with the table of an identity as clients have it."""
    found = dict(given)
    try:
        if isinstance(table := given.get(KEY), Mapping):
            found[KEY] = encoded(table)
        elif table is not None:
            made(str(table))
        require_fit(found)
    except ValueError as error:
        msg = f"kafka: {error}"
        raise BadSettings(msg) from None
    return found


class Direct:
    """One idempotent producer, until the first failure."""

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        """
        Connect in the background.

        Raises:
            NoToken, BadSettings: the provider of an identity gives no token.
            NoClient: there is no room for a client, or its certificate is just being renewed.
        """
        self._acknowledged: list[int] = []
        self._failure: str | None = None
        self._topic = ""
        self._producer = lasting(Producer, configuration, _log, patience=_TOKEN)

    def trouble(self, topic: str, timeout: float) -> str | None:
        """Return why records for `topic` cannot be sent right now, or None."""
        try:
            found = self._producer.list_topics(topic, timeout=timeout).topics[topic]
        except KafkaException as error:
            return str(error.args[0].str())
        if any(partition.leader < 0 for partition in found.partitions.values()):
            return f"a partition of {topic} has no leader"
        # The cluster is there: it knows that the topic is not.
        return None

    def send(self, number: int, event: Event) -> None:
        """
        Hand a record over; `reports` returns the outcome.

        Raises:
            KafkaException, BufferError: it will not be sent.
        """
        key, value, headers = encode(event)
        self._topic = event.topic
        self._producer.produce(
            event.topic,
            value,
            key,
            headers=headers,  # type: ignore[arg-type]  # a list that need not hold strings
            on_delivery=partial(self._reported, number, event.topic),
        )

    def reports(self, timeout: float) -> tuple[list[int], str | None]:
        """
        Wait for reports; return the records that the broker has, and the failure if there was one.
        """
        self._poll(timeout)
        found, self._acknowledged = self._acknowledged, []
        return found, self._failure

    def stop(self) -> list[int]:
        """Stop sending; return the records that the broker has acknowledged by now."""
        self._producer.purge()
        deadline = time.monotonic() + _PURGE_SECONDS
        while len(self._producer) and time.monotonic() < deadline:
            self._poll(_STEP)
        return self._acknowledged

    def _poll(self, timeout: float) -> None:
        try:
            self._producer.poll(timeout)
        except CLIENT_ERRORS as error:
            # librdkafka reports a fatal error once. The remaining reports come with the next call,
            # and say why.
            with suppress(*CLIENT_ERRORS):
                self._producer.poll(_STEP)
            self._failure = self._failure or self._said(error)

    def _said(self, error: Exception) -> str:
        said = said_by_client(error)
        if said is None:
            return str(error)
        # A user who may write to no topic gets no id for an idempotent producer, either.
        return told(said, right("Write", "topic", self._topic))

    def _reported(self, number: int, topic: str, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acknowledged.append(number)
        elif self._failure is None:
            self._failure = told(error, right("Write", "topic", topic))
