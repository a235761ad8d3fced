"""Classify Kafka's errors for a relay."""

from datetime import UTC, datetime

from confluent_kafka import KafkaError

from outbox.kafka_errors import FORBIDDEN, right, told
from relay.errors import Refused

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  # the name librdkafka gives it
"""Another relay has taken over."""

BROKEN = {
    KafkaError._FATAL,  # noqa: SLF001  # the name librdkafka gives it
    KafkaError._STATE,  # noqa: SLF001  # the name librdkafka gives it
    # A refused record, of which this may be heard before its report.
    KafkaError._GAPLESS_GUARANTEE,  # noqa: SLF001  # the name librdkafka gives it
}
"""The producer takes nothing more; delivery reports may say why."""

MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # the name librdkafka gives it
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # the name librdkafka gives it
}
"""The topic does not exist."""

OF_TOPIC = MISSING | {KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Errors that concern every event of a topic."""

OF_EVENT = {
    # Larger than the topic's max.message.bytes, or librdkafka's message.max.bytes.
    KafkaError.MSG_SIZE_TOO_LARGE,
    # Larger than the topic's segment.bytes.
    KafkaError.RECORD_LIST_TOO_LARGE,
    # The broker's validation: a compacted topic takes no event without a key, for example.
    KafkaError.INVALID_RECORD,
    # Gateways in front of brokers answer this if their rules reject a record.
    KafkaError.POLICY_VIOLATION,
}
"""Errors that concern one event: its size, its key or its content."""

POISON = OF_TOPIC | OF_EVENT
"""
Errors for records that the broker will never take, however long we wait.

Every other error is about the producer, its request, or the broker's own state. See
tests/unit/relay/kafka/test_errors.py for each code that an answer can have.
"""

CLOCK = {KafkaError.INVALID_TIMESTAMP}
"""A record's time is too far from the broker's clock: the clock is wrong, not the event."""

_TOO_OLD = {KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION}  # noqa: SLF001  # the name librdkafka gives it


def of_clocks(topic: str | None, said: str, now: float) -> str:
    """Return the message for a topic that refuses `now`, the relay's time."""
    which = "a topic" if topic is None else f"topic {topic}"
    ours = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
    return (
        f"Kafka: {which} refuses the time of records ({said}): this relay's clock says {ours}, "
        "and the broker's is further from that than the topic's message.timestamp.after.max.ms "
        "(or before.max.ms) allows; set the clock that is wrong, `dovecote relay doctor` compares "
        "them"
    )


def code_of(error: KafkaError) -> str:
    """Return the name of an error, under which events are parked."""
    return error.name().lstrip("_")


def shuts_out(error: KafkaError) -> bool:
    """Return whether the broker does not know us, or is not the one that we trust."""
    # An SSL error that does not mention certificates may come from a broker that is shutting down.
    return error.code() == KafkaError._AUTHENTICATION or (  # noqa: SLF001  # the name librdkafka gives it
        error.code() == KafkaError._SSL and "certificate" in error.str()  # noqa: SLF001  # the name librdkafka gives it
    )


def refusal(
    error: KafkaError, transaction_timeout: float, *, progress_topic: str, transactional_id: str
) -> Refused | None:
    """Return a producer's `error` as a refusal if only an operator can resolve it, or None."""
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        msg = (
            f"`transaction_timeout` of {transaction_timeout:g} s is longer than this broker "
            "allows; shorten it, or raise the broker's transaction.max.timeout.ms"
        )
        return Refused(msg)
    if error.code() in FORBIDDEN:
        needed = right("Write", "topic", progress_topic)
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            # The outbox's own id follows after its name.
            needed = right("Write", "transactional id", transactional_id.rpartition(".")[0] + ".")
            needed += ", prefixed"
        said = told(error, needed)
        msg = f"not allowed to publish: {said}"
        return Refused(msg)
    if error.code() in _TOO_OLD:
        msg = f"this Kafka is too old ({error.str()}): Dovecote needs Kafka 3.7 or newer"
        return Refused(msg)
    return None
