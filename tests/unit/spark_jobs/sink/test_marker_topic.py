"""The topic of markers, where Kafka does not answer."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from outbox.errors import BadSettings
from spark_jobs.errors import KafkaUnavailable
from spark_jobs.sink.admission import admit
from spark_jobs.sink.marker_topic import MarkerTopic
from spark_jobs.sink.markers import Turn
from spark_jobs.sink.sink import SinkConfig

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


class Broker:
    """A client of a broker that has the topic and answers everything else with an error."""

    def __init__(self, code: int) -> None:
        self._error = KafkaException(KafkaError(code))

    def list_topics(self, timeout: float) -> Any:  # noqa: ARG002  # as the client's
        return type("Found", (), {"topics": {}})

    def create_topics(self, *_: object, **__: object) -> Any:
        return {"m": self}

    def result(self) -> None:
        raise self._error


@pytest.fixture
def nowhere() -> MarkerTopic:
    return MarkerTopic("m", NOWHERE, timeout=0.2)


def test_an_outage_is_no_wrong_setting(nowhere: MarkerTopic) -> None:
    with pytest.raises(KafkaUnavailable, match="marker topic m: "):
        nowhere.ensure(2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TIMED_OUT, KafkaUnavailable),
        (KafkaError.REQUEST_TIMED_OUT, KafkaUnavailable),
        (KafkaError.NOT_CONTROLLER, KafkaUnavailable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BadSettings),
        (KafkaError.POLICY_VIOLATION, BadSettings),
    ],
)
def test_a_broker_that_comes_back_is_waited_for_and_a_refusal_is_a_setting(
    nowhere: MarkerTopic, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    monkeypatch.setattr(nowhere, "_admin", lambda: Broker(code))

    with pytest.raises(kind, match="marker topic m: "):
        nowhere.ensure(2)


def test_a_query_that_finds_no_broker_says_which_topic_it_asked_for() -> None:
    config = SinkConfig(kafka=NOWHERE, marker_topic="m", transactional_id="t", timeout=0.2)
    turn = Turn(query="q", batch=0, partition=0, partitions=2)

    with pytest.raises(KafkaUnavailable, match="marker topic m: "):
        admit(turn, config, adopt=False)
