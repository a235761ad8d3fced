"""The properties of a job's Kafka clients, which are librdkafka's."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError

from outbox.errors import NoClient
from outbox.kafka import PARTITIONER, Named, kafka_logger
from outbox.secrets import fresh_all
from outbox.tokens.source import client_of, for_client
from spark_jobs.errors import KafkaUnavailable

C = TypeVar("C", bound=Named)

CLIENT_LOG = kafka_logger("dovecote.spark.kafka")

_CLIENT = (
    *("bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.", "oauth"),
    "identity",
)

MESSAGE_MAX_BYTES = 1_048_588
"""The broker's own default, like the relay's: the events that it publishes come through here."""

_DEFAULTS = {
    "compression.type": "lz4",
    "linger.ms": "5",
    "batch.size": "1000000",
    "message.max.bytes": str(MESSAGE_MAX_BYTES),
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "1048576",
    # librdkafka asks for a producer id with pauses of its own, which are long compared with a
    # transaction.
    "retry.backoff.ms": "5",
    "retry.backoff.max.ms": "500",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "2000",
    "client.id": "dovecote-spark",
}
_GUARANTEES: Mapping[str, str | bool] = {
    "acks": "all",
    "enable.idempotence": "true",
    # librdkafka's default differs from Java's, and a key would change its partition.
    **PARTITIONER,
    "delivery.report.only.error": True,
}

FIXED = frozenset(
    {*_GUARANTEES, "transactional.id", "transaction.timeout.ms", "message.timeout.ms"}
    | {"isolation.level", "enable.gapless.guarantee"}
)
"""Properties that exactly-once depends on; settings that name one are refused."""

FIXED_READING = frozenset(
    {"group.id", "enable.auto.commit", "enable.auto.offset.store", "isolation.level"}
    | {"enable.partition.eof", "auto.offset.reset"}
)
"""The same for properties of the consumers."""

MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001  # librdkafka's name
"""Errors that say that a topic does not exist."""

CONNECTION = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE}  # noqa: SLF001  # as above
    | {KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT}  # noqa: SLF001  # as above
)
"""Errors that librdkafka gets over by itself, once a broker is there."""


def leave_guarantees_alone(properties: dict[str, str]) -> dict[str, str]:
    """
    Return the `[kafka]` table of a job's settings unchanged.

    Raises:
        ValueError: it lacks the brokers, or sets what exactly-once depends on.
    """
    if "bootstrap.servers" not in properties:
        msg = '"bootstrap.servers" is missing'
        raise ValueError(msg)
    if fixed := sorted(FIXED & properties.keys()):
        msg = f"{', '.join(fixed)} cannot be set: exactly once rests on it"
        raise ValueError(msg)
    return properties


def client(properties: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties that say how to reach the broker, as they are now."""
    given = {name: value for name, value in properties.items() if name.startswith(_CLIENT)}
    return fresh_all(given)


# Spark tries a task a few times at once, so each try waits for a provider that is away, and for a
# certificate that is being replaced.
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.5


def connected(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return what `client` does, with secrets as they are now, and with a token."""
    return with_token(client(properties))


def quiet(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return what `connected` does, for a client whose answers say enough."""
    return {**connected(properties), "log_level": 0}


def with_token(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties as a new client in a driver or a task takes them."""
    return for_client(properties, _PATIENCE_SECONDS)


def made(
    kind: Callable[..., C],
    given: Callable[[], Mapping[str, Any]],
    log: logging.Logger = CLIENT_LOG,
    *,
    patience: float = _PATIENCE_SECONDS,
) -> C:
    """
    Return a client of class `kind` in a driver or a task, with what `given` returns now.

    A certificate may just be replaced, so it tries again for a while.

    Raises:
        KafkaUnavailable: there is no client all the same.
    """
    # By hand: those who only look at jobs have no library for it.
    deadline = time.monotonic() + patience
    while True:
        try:
            return client_of(kind, given(), log)
        except NoClient as error:
            if time.monotonic() >= deadline:
                raise KafkaUnavailable(str(error)) from error
        time.sleep(_PAUSE_SECONDS)


def producer(
    properties: Mapping[str, str], *, transactional_id: str, timeout: float
) -> dict[str, str | int | float | bool]:
    """Return a transactional producer's configuration: guarantees over `properties`."""
    milliseconds = str(round(timeout * 1000))
    return {
        **_DEFAULTS,
        **fresh_all(properties),
        **_GUARANTEES,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": milliseconds,
        "message.timeout.ms": milliseconds,
    }
