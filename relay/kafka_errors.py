"""What an error of Kafka means for a relay."""

from confluent_kafka import KafkaError

from relay.errors import Refused

FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  # the name librdkafka gives it
"""Another relay has taken over."""

BROKEN = {KafkaError._FATAL, KafkaError._STATE}  # noqa: SLF001  # the name librdkafka gives it
"""The producer takes nothing more; why, reports of what it had tell, or nothing."""

MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # the name librdkafka gives it
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # the name librdkafka gives it
}
"""The topic is not there."""

POISON = MISSING | {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.POLICY_VIOLATION,
}
"""What the broker can never take, however long one waits."""

OF_TOPIC = MISSING | {KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""What is said of every event of a topic."""

FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The broker knows us, and has not been told that we may."""

_TOO_OLD = {KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION}  # noqa: SLF001  # the name librdkafka gives it


def code_of(error: KafkaError) -> str:
    """Return the name of an error, as events are parked under it."""
    return error.name().lstrip("_")


def shuts_out(error: KafkaError) -> bool:
    """Tell whether a broker said that it does not know us, or is not the one that we trust."""
    # Without a word of certificates, a handshake may have broken off because a broker is going.
    return error.code() == KafkaError._AUTHENTICATION or (  # noqa: SLF001  # the name librdkafka gives it
        error.code() == KafkaError._SSL and "certificate" in error.str()  # noqa: SLF001  # the name librdkafka gives it
    )


def refusal(error: KafkaError, transaction_timeout: float) -> Refused | None:
    """Return what only an operator can mend, if that is what a producer's `error` says."""
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        msg = (
            f"`transaction_timeout` of {transaction_timeout:g} s is longer than this broker "
            "allows; shorten it, or raise the broker's transaction.max.timeout.ms"
        )
        return Refused(msg)
    if error.code() in FORBIDDEN:
        msg = (
            f"not allowed to publish ({error.str()}); grant this user `Write` on the progress "
            "topic and on its transactional ids, see docs/relay.md"
        )
        return Refused(msg)
    if error.code() in _TOO_OLD:
        msg = f"this Kafka is too old ({error.str()}): Dovecote needs Kafka 3.7 or newer"
        return Refused(msg)
    return None
