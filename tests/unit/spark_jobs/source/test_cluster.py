"""Which topics a pattern takes in while brokers learn of a new topic one after the other."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from spark_jobs.errors import KafkaUnavailable, SourceChanged
from spark_jobs.source import cluster
from spark_jobs.source.cluster import Cluster
from spark_jobs.source.offsets import Offsets

MISSING = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
NO_LEADER = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def _future(answer: object) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, KafkaError):
        future.set_exception(KafkaException(answer))
    else:
        future.set_result(answer)
    return future


class Brokers:
    """Brokers that list, describe and answer for different topics, as they do for a moment."""

    def __init__(self) -> None:
        self.listed = ["a.1", "a.2", "b"]
        self.described: dict[str, object] = {"a.1": [1, 1], "a.2": [1], "b": [1]}
        """For each partition whether it has a leader; or an error."""
        self.ends: dict[str, object] = {}
        """An error in place of the end of each partition, which is 7."""
        self.asked: list[str | None] = []
        self.described_at: Callable[[], None] = lambda: None

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> SimpleNamespace:
        assert timeout > 0
        self.asked.append(topic)
        return SimpleNamespace(topics=dict.fromkeys(self.listed))

    def describe_topics(self, topics: Any, *, request_timeout: float) -> Mapping[str, Any]:
        assert request_timeout > 0
        found = {name: self._described(name) for name in topics.topic_names}
        self.described_at()
        return found

    def _described(self, name: str) -> Future[Any]:
        answer = self.described.get(name, MISSING)
        if not isinstance(answer, list):
            return _future(answer)
        leaders = [SimpleNamespace(id=9) if each else None for each in answer]
        partitions = [SimpleNamespace(id=n, leader=each) for n, each in enumerate(leaders)]
        return _future(SimpleNamespace(partitions=partitions, topic_id=f"i{name}"))

    def list_offsets(
        self, asked: Mapping[TopicPartition, object], **_: object
    ) -> Mapping[TopicPartition, Future[Any]]:
        assert asked
        end = SimpleNamespace(offset=7)
        return {place: _future(self.ends.get(place.topic, end)) for place in asked}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr(cluster, "AdminClient", lambda *_, **__: made)
    monkeypatch.setattr(cluster, "_BEHIND_SECONDS", 0.2)
    monkeypatch.setattr(cluster, "_AGAIN_SECONDS", 0.01)
    return made


@pytest.fixture
def kafka(brokers: Brokers) -> Cluster:  # noqa: ARG001  # its client
    return Cluster({"bootstrap.servers": "x:1"})


BOTH = Offsets({"a.1": {0: 7, 1: 7}, "a.2": {0: 7}}, {"a.1": "ia.1", "a.2": "ia.2"})


def test_a_pattern_takes_in_the_topics_that_are_there(kafka: Cluster, brokers: Brokers) -> None:
    assert kafka.latest(["a.*"]) == BOTH
    assert kafka.earliest(["a.*"], known=["a.1"]) == BOTH
    assert kafka.latest(["a.*", "!a.2"]) == BOTH.without({"a.2"})
    assert kafka.latest(["?", "a.2"]).ends == {"b": {0: 7}, "a.2": {0: 7}}
    assert kafka.latest(["x*"]) == Offsets({})
    assert brokers.asked == [None] * 5


def test_without_a_pattern_one_topic_is_asked_about(kafka: Cluster, brokers: Brokers) -> None:
    assert kafka.latest(["a.1", "a.2"]) == BOTH
    assert brokers.asked == ["a.1"]

    brokers.described["a.2"] = MISSING
    with pytest.raises(SourceChanged, match=r"a\.2 does not exist: create it"):
        kafka.latest(["a.1", "a.2"], known=["a.1"])
    brokers.described["a.2"] = NO_LEADER
    with pytest.raises(KafkaUnavailable):
        kafka.latest(["a.1", "a.2"], known=["a.1"])


@pytest.mark.parametrize("answer", [MISSING, []])
@pytest.mark.parametrize("known", [None, ["a.1"]])
def test_a_topic_that_is_being_created_is_not_there_yet(
    kafka: Cluster, brokers: Brokers, answer: object, known: list[str] | None
) -> None:
    brokers.described["a.2"] = answer

    assert kafka.latest(["a.*"], known=known) == BOTH.without({"a.2"})


def test_a_plain_topic_must_be_there_beside_a_pattern(kafka: Cluster, brokers: Brokers) -> None:
    del brokers.described["b"]

    with pytest.raises(SourceChanged, match="topic b does not exist"):
        kafka.latest(["a.*", "b"], known=["a.1", "b"])


@pytest.mark.parametrize(
    ("described", "ends"),
    [([1, None], None), (NO_LEADER, None), ([1], MISSING), ([1], NO_LEADER)],
)
def test_a_new_topic_whose_leaders_are_not_ready_is_left_out_unless_the_query_begins(
    kafka: Cluster, brokers: Brokers, described: object, ends: object
) -> None:
    brokers.described["a.2"] = described
    if ends is not None:
        brokers.ends["a.2"] = ends

    assert kafka.latest(["a.*"], known=["a.1"]) == BOTH.without({"a.2"})
    if isinstance(described, KafkaError) or ends is not None:
        for known in (None, ["a.1", "a.2"]):
            with pytest.raises(KafkaUnavailable):
                kafka.latest(["a.*"], known=known)


def test_what_nobody_may_read_is_an_error(kafka: Cluster, brokers: Brokers) -> None:
    brokers.described["a.2"] = DENIED

    with pytest.raises(KafkaUnavailable):
        kafka.latest(["a.*"], known=["a.1"])


def test_a_topic_that_was_read_is_asked_about_until_every_broker_must_know_it(
    kafka: Cluster, brokers: Brokers
) -> None:
    brokers.listed.remove("a.2")
    assert kafka.latest(["a.*"], known=["a.1", "a.2"]) == BOTH

    there = brokers.described.pop("a.2")
    assert kafka.latest(["a.*"], known=["a.1", "a.2"]) == BOTH.without({"a.2"})

    brokers.described_at = lambda: brokers.described.update({"a.2": there})
    assert kafka.latest(["a.*"], known=["a.1", "a.2"]) == BOTH
