"""How to reach Kafka, for librdkafka and for Java."""

from pathlib import Path

import pytest

from outbox.errors import BadSettings
from spark_jobs.sink import kafka_options

BARE = {"bootstrap.servers": "k:9092"}
WAIT = "kafka.fetch.max.wait.ms"


def test_sasl_over_tls_is_told_in_javas_words(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----")

    options = kafka_options.source(
        {
            **BARE,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "me",
            "sasl.password": 'a"b\\c',
            "ssl.ca.location": str(authority),
            "linger.ms": "50",
        },
        {"failOnDataLoss": "false"},
    )

    assert options == {
        WAIT: options[WAIT],
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="me" password="a\\"b\\\\c";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
        "failOnDataLoss": "false",
    }


def test_a_client_certificate_is_handed_over_as_text() -> None:
    options = kafka_options.source(
        {**BARE, "ssl.certificate.pem": "C", "ssl.key.pem": "K", "ssl.key.password": "p"}, {}
    )

    assert options["kafka.ssl.keystore.type"] == "PEM"
    assert options["kafka.ssl.keystore.certificate.chain"] == "C"
    assert options["kafka.ssl.keystore.key"] == "K"
    assert options["kafka.ssl.key.password"] == "p"


def test_options_of_the_source_come_over_what_is_derived() -> None:
    own = {"kafka.bootstrap.servers": "other:9092", WAIT: "100"}

    assert kafka_options.source(BARE, own) == own


def test_no_task_waits_for_records_beyond_its_own() -> None:
    assert int(kafka_options.source(BARE, {})[WAIT]) <= 10


@pytest.mark.parametrize(
    "given",
    [
        {"enable.ssl.certificate.verification": "false"},
        {"sasl.username": "me"},
        {"sasl.username": "me", "sasl.mechanism": "GSSAPI"},
        {"ssl.ca.location": "/nowhere/ca.pem"},
    ],
)
def test_what_java_cannot_do_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match="kafka"):
        kafka_options.source({**BARE, **given}, {})


def test_a_producers_guarantees_come_over_everything() -> None:
    config = kafka_options.producer(
        {**BARE, "linger.ms": "50", "acks": "1"}, transactional_id="t", timeout=2.5
    )

    assert config["acks"] == "all"
    assert config["partitioner"] == "murmur2_random"
    assert config["linger.ms"] == "50"
    assert config["transaction.timeout.ms"] == "2500"


def test_consumers_get_only_what_says_how_to_reach_the_broker() -> None:
    given = {**BARE, "linger.ms": "5", "sasl.password": "x"}

    assert kafka_options.client(given) == {**BARE, "sasl.password": "x"}
