"""What an operator must mend is told from what is waited for."""

import pytest
from confluent_kafka import KafkaError

from relay.kafka_errors import refusal, shuts_out


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "`transaction_timeout` of 960 s is longer than"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "grant this user `Write`"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "grant this user `Write`"),
        (KafkaError._UNSUPPORTED_FEATURE, "this Kafka is too old"),
        (KafkaError.UNSUPPORTED_VERSION, "needs Kafka 3.7 or newer"),
    ],
)
def test_what_only_an_operator_mends_is_refused(code: int, says: str) -> None:
    assert says in str(refusal(KafkaError(code), 960.0))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_ENOUGH_REPLICAS,
    ],
)
def test_an_outage_is_not(code: int) -> None:
    assert refusal(KafkaError(code), 960.0) is None
    assert not shuts_out(KafkaError(code))


def test_a_broken_handshake_shuts_out_only_for_a_certificate() -> None:
    def failed(why: str) -> KafkaError:
        return KafkaError(KafkaError._SSL, why)

    assert shuts_out(KafkaError(KafkaError._AUTHENTICATION, "Authentication failed"))
    assert shuts_out(failed("SSL handshake failed: certificate verify failed"))
    assert not shuts_out(failed("SSL handshake failed: Disconnected: connecting to a broker"))
