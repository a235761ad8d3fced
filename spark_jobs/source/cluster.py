"""Ask Kafka which partitions topics have, where they begin and end, and their ids."""

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]  # no types

from outbox.kafka import kafka_logger
from spark_jobs.errors import KafkaUnavailable, SourceChanged
from spark_jobs.sink import kafka_options
from spark_jobs.source.offsets import Offsets

_OffsetSpecs: Any = _OffsetSpec
_log = kafka_logger("dovecote.spark.librdkafka")
_SECONDS = 10.0


class Cluster:
    """A connection to a cluster, made at the first question."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = kafka_options.client(properties)
        self._admin: AdminClient | None = None

    def latest(self, topics: Iterable[str]) -> Offsets:
        """
        Return the ends of all partitions of `topics` for `read_committed`.

        Raises:
            SourceChanged: a topic does not exist.
            KafkaUnavailable: no broker answers.
        """
        return self._offsets(topics, _OffsetSpecs.latest(), IsolationLevel.READ_COMMITTED)

    def earliest(self, topics: Iterable[str]) -> Offsets:
        """Return the earliest offsets of all partitions of `topics`; raises as `latest` does."""
        return self._offsets(topics, _OffsetSpecs.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def _offsets(self, topics: Iterable[str], spec: Any, level: IsolationLevel) -> Offsets:  # noqa: ANN401  # the client's own
        try:
            partitions, ids = self._described(list(topics))
            asked = self._client().list_offsets(
                {
                    TopicPartition(topic, each): spec
                    for topic, there in partitions.items()
                    for each in there
                },
                isolation_level=level,
                request_timeout=_SECONDS,
            )
            ends: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
            for place, answer in asked.items():
                ends[place.topic][place.partition] = answer.result().offset
        except KafkaException as error:
            raise _unavailable(self._properties, error) from error
        return Offsets(ends, ids)

    def _described(self, topics: list[str]) -> tuple[dict[str, list[int]], dict[str, str]]:
        # librdkafka's parser cannot read the description of a broker that is shutting down, and
        # aborts the process. So make sure that a broker answers.
        self._client().list_topics(topics[0], _SECONDS)
        answers = self._client().describe_topics(TopicCollection(topics), request_timeout=_SECONDS)
        partitions: dict[str, list[int]] = {}
        ids: dict[str, str] = {}
        for topic, answer in answers.items():
            try:
                found = answer.result()
            except KafkaException as error:
                if error.args[0].code() in kafka_options.MISSING:
                    msg = f"topic {topic} does not exist: create it, or correct source.topics"
                    raise SourceChanged(msg) from error
                raise
            partitions[topic] = [each.id for each in found.partitions]
            ids[topic] = str(found.topic_id)
        return partitions, ids

    def _client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({**self._properties, "log_level": 0}, logger=_log)
        return self._admin


def _unavailable(properties: Mapping[str, str], error: KafkaException) -> KafkaUnavailable:
    return KafkaUnavailable(f"{properties['bootstrap.servers']}: {error.args[0].str()}")
