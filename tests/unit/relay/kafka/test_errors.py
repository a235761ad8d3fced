"""Errors that an operator must resolve are distinguished from those that the relay waits for."""

import pytest
from confluent_kafka import KafkaError

from relay.errors import Refused
from relay.kafka.errors import CLOCK, OF_EVENT, OF_TOPIC, POISON, of_clocks, refusal, shuts_out

# The subject of each answer to a produce request: the codes of Kafka (common.protocol.Errors) that
# ReplicaManager, LogValidator, UnifiedLog and KafkaApis return, and librdkafka's own.
MEANINGS = {
    "topic": [
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # deleted, or never made
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_EXCEPTION,  # no topic can have the name
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ],
    "event": [
        KafkaError.MSG_SIZE_TOO_LARGE,  # max.message.bytes; the client's own before it is sent
        KafkaError.RECORD_LIST_TOO_LARGE,  # segment.bytes
        KafkaError.INVALID_RECORD,  # LogValidator: no key on a compacted topic
        KafkaError.POLICY_VIOLATION,  # gateways; a broker returns it for topics and settings only
    ],
    "clock": [KafkaError.INVALID_TIMESTAMP],  # message.timestamp.after.max.ms; the time is ours
    "request": [
        KafkaError.INVALID_MSG,  # a checksum: damaged on the way
        KafkaError.INVALID_MSG_SIZE,  # of a fetch, in truth
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.INVALID_REQUEST,
    ],
    "producer": [
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.DUPLICATE_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._MSG_TIMED_OUT,
    ],
    "broker": [
        KafkaError.UNKNOWN,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._TRANSPORT,
    ],
}


@pytest.mark.parametrize(
    ("meaning", "code"), [(meaning, code) for meaning, codes in MEANINGS.items() for code in codes]
)
def test_only_what_an_event_or_its_topic_is_counts_as_poison(meaning: str, code: int) -> None:
    assert (code in OF_TOPIC) == (meaning == "topic")
    assert (code in OF_EVENT) == (meaning == "event")
    assert (code in CLOCK) == (meaning == "clock")
    assert (code in POISON) == (meaning in {"topic", "event"})


def test_whatever_counts_as_poison_is_in_the_table() -> None:
    assert {*MEANINGS["topic"], *MEANINGS["event"]} == POISON
    assert set(MEANINGS["clock"]) == CLOCK


def test_what_is_said_of_clocks_names_both() -> None:
    said = of_clocks("orders", "Broker: Invalid timestamp", 1_700_000_000)
    assert "this relay's clock says 2023-11-14T22:13:20+00:00" in said
    assert "the broker's" in said


def refused(code: int) -> Refused | None:
    return refusal(
        KafkaError(code),
        960.0,
        progress_topic="dovecote.progress.shop",
        transactional_id="dovecote.relay.shop.0190b3f2-6c1e-7a55-8d0e-000000000000",
    )


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "`transaction_timeout` of 960 s is longer than"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "grant this user `Write` on transactional id 'dovecote.relay.shop.', prefixed, see",
        ),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            "grant this user `Write` on topic 'dovecote.progress.shop', see docs/security.md",
        ),
        (KafkaError._UNSUPPORTED_FEATURE, "this Kafka is too old"),
        (KafkaError.UNSUPPORTED_VERSION, "needs Kafka 3.7 or newer"),
    ],
)
def test_what_only_an_operator_mends_is_refused(code: int, says: str) -> None:
    assert says in str(refused(code))


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
    assert refused(code) is None
    assert not shuts_out(KafkaError(code))


def test_a_broken_handshake_shuts_out_only_for_a_certificate() -> None:
    def failed(why: str) -> KafkaError:
        return KafkaError(KafkaError._SSL, why)

    assert shuts_out(KafkaError(KafkaError._AUTHENTICATION, "Authentication failed"))
    assert shuts_out(failed("SSL handshake failed: certificate verify failed"))
    assert not shuts_out(failed("SSL handshake failed: Disconnected: connecting to a broker"))
