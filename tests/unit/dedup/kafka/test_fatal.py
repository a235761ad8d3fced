"""Errors of Kafka's client that are its end, with the flag that says so and without it."""

import pytest
from confluent_kafka import KafkaError

from dedup.kafka.fatal import StillUsed, reason_to_end


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._FATAL, "Fatal error: fenced"),
        KafkaError(KafkaError.FENCED_INSTANCE_ID),
        KafkaError(KafkaError.UNRELEASED_INSTANCE_ID),
        KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, fatal=True),
    ],
)
def test_a_fatal_error_is_a_reason_to_end(error: KafkaError) -> None:
    assert error.str() in str(reason_to_end(error))


def test_a_name_that_is_still_used_may_be_free_later() -> None:
    code = KafkaError.UNRELEASED_INSTANCE_ID
    as_the_client_says = f"Fatal error: {KafkaError(code).str()}: ConsumerGroupHeartbeat"
    for error in (KafkaError(code), KafkaError(KafkaError._FATAL, as_the_client_says)):
        assert isinstance(reason_to_end(error), StillUsed)
    assert not isinstance(reason_to_end(KafkaError(KafkaError.FENCED_INSTANCE_ID)), StillUsed)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_other_errors_pass_or_are_waited_for(code: int) -> None:
    assert reason_to_end(KafkaError(code)) is None
