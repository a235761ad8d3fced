"""Ask Kafka which partitions topics have, where they begin and end, and their ids."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec  # type: ignore[attr-defined]  # no types
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_delay, wait_fixed

from outbox.kafka import Credentials, kafka_logger
from outbox.kafka_errors import FORBIDDEN, right, told
from spark_jobs.errors import KafkaUnavailable, SourceChanged
from spark_jobs.sink import kafka_options
from spark_jobs.source.offsets import Offsets
from spark_jobs.source.topics import matched, patterns, plain

_OffsetSpecs: Any = _OffsetSpec
_log = kafka_logger("dovecote.spark.librdkafka")
_SECONDS = 10.0
_BEHIND_SECONDS = 3.0
_AGAIN_SECONDS = 0.2
# Brokers answer with these while the leader of a partition is not ready, or not known everywhere.
_UNREADY = kafka_options.MISSING | {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


class Cluster:
    """A connection to a cluster, made at the first question."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = kafka_options.client(properties)
        self._credentials: Credentials | None = None
        self._admin: AdminClient | None = None

    def latest(self, topics: Iterable[str], *, known: Collection[str] | None = None) -> Offsets:
        """
        Return the ends of all partitions of `topics`, names and patterns, for `read_committed`.

        `known` are the topics that the query has read before. Another one that a pattern takes in
        is left out until all of its partitions answer. At a first start there is no `known`, and
        no topic with partitions is left out: `latest` would mean a later end.

        Raises:
            SourceChanged: a topic that has a plain name does not exist.
            KafkaUnavailable: no broker answers.
        """
        asked = _Asked(tuple(topics), known)
        return self._offsets(asked, _OffsetSpecs.latest(), IsolationLevel.READ_COMMITTED)

    def written(self, topics: Iterable[str], *, known: Collection[str] | None = None) -> Offsets:
        """
        Return the ends of the logs, in the way of `latest`.

        A transaction that is open lies between what `latest` returns and these.
        """
        asked = _Asked(tuple(topics), known)
        return self._offsets(asked, _OffsetSpecs.latest(), IsolationLevel.READ_UNCOMMITTED)

    def earliest(self, topics: Iterable[str], *, known: Collection[str] | None = None) -> Offsets:
        """Return the earliest offsets of all partitions of `topics`, in the way of `latest`."""
        asked = _Asked(tuple(topics), known)
        return self._offsets(asked, _OffsetSpecs.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def _offsets(self, asked: "_Asked", spec: Any, level: IsolationLevel) -> Offsets:  # noqa: ANN401  # the client's own
        try:
            partitions, ids = self._described(asked)
            if not partitions:  # the client refuses to ask about nothing
                return Offsets({})
            answers = self._client().list_offsets(
                {
                    TopicPartition(topic, each): spec
                    for topic, there in partitions.items()
                    for each in there
                },
                isolation_level=level,
                request_timeout=_SECONDS,
            )
            ends: dict[str, dict[int, int]] = {topic: {} for topic in partitions}
            unready: set[str] = set()
            for place, answer in answers.items():
                try:
                    ends[place.topic][place.partition] = answer.result().offset
                except KafkaException as error:
                    if not asked.may_lack(place.topic) or error.args[0].code() not in _UNREADY:
                        raise
                    unready.add(place.topic)
        except KafkaException as error:
            if self._credentials is not None and self._credentials.change:
                self._client().poll(0)  # calls error_cb
            raise _unavailable(self._properties, error) from error
        return Offsets(ends, ids).without(unready)

    def _described(self, asked: "_Asked") -> tuple[dict[str, list[int]], dict[str, str]]:
        # librdkafka's parser cannot read the description of a broker that is shutting down, and
        # aborts the process. So make sure that a broker answers.
        if not asked.has_patterns:
            self._client().list_topics(asked.entries[0], _SECONDS)
            return self._described_names(asked, asked.entries)
        there = self._client().list_topics(timeout=_SECONDS).topics
        names = asked.names(there)
        # A broker may lack, for a moment, a new topic of which another one has told us.
        looking = Retrying(
            retry=retry_if_result(lambda found: not asked.known_of(names) <= found[0].keys()),
            stop=stop_after_delay(_BEHIND_SECONDS),
            wait=wait_fixed(_AGAIN_SECONDS),
            retry_error_callback=_last,
        )
        found: tuple[dict[str, list[int]], dict[str, str]]
        found = looking(self._described_names, asked, names)
        return found

    def _described_names(
        self, asked: "_Asked", names: Sequence[str]
    ) -> tuple[dict[str, list[int]], dict[str, str]]:
        partitions: dict[str, list[int]] = {}
        ids: dict[str, str] = {}
        if not names:
            return partitions, ids
        topics = TopicCollection([*names])
        answers = self._client().describe_topics(topics, request_timeout=_SECONDS)
        for topic, answer in answers.items():
            try:
                found = answer.result()
            except KafkaException as error:
                if error.args[0].code() in kafka_options.MISSING:
                    if asked.is_from_pattern(topic):
                        continue
                    msg = f"topic {topic} does not exist: create it, or correct source.topics"
                    raise SourceChanged(msg) from error
                if asked.may_lack(topic) and error.args[0].code() in _UNREADY:
                    continue
                if error.args[0].code() in FORBIDDEN:
                    said = told(error.args[0], right("Read", "topic", topic))
                    msg = f"topic {topic} cannot be read: {said}"
                    raise KafkaUnavailable(msg) from error
                raise
            # A topic that is being created has no partitions at first, and then no leaders.
            if not found.partitions and asked.is_from_pattern(topic):
                continue
            if asked.may_lack(topic) and any(map(_lacks_leader, found.partitions)):
                continue
            partitions[topic] = [each.id for each in found.partitions]
            ids[topic] = str(found.topic_id)
        return partitions, ids

    def _client(self) -> AdminClient:
        if self._admin is None:
            # Spark pickles this object before it asks.
            self._credentials = credentials = Credentials(self._properties)
            heard: Any = credentials.heard
            self._admin = kafka_options.made(
                AdminClient,
                lambda: {**kafka_options.quiet(self._properties), "error_cb": heard},
                _log,
            )
            credentials.keep(self._admin)
        return self._admin


@dataclass(frozen=True, slots=True)
class _Asked:
    """The topics that a question is about: the entries, and what the query has read of them."""

    entries: tuple[str, ...]
    known: Collection[str] | None

    @property
    def has_patterns(self) -> bool:
        return bool(patterns(self.entries))

    def names(self, there: Iterable[str]) -> list[str]:
        """Return the topics to ask about; a broker that is behind may not list a known one."""
        listed = {*there, *(self.known or ())}
        return [*plain(self.entries), *matched(self.entries, listed)]

    def known_of(self, names: Iterable[str]) -> set[str]:
        return {*names} & {*(self.known or ())}

    def is_from_pattern(self, topic: str) -> bool:
        return topic not in self.entries

    def may_lack(self, topic: str) -> bool:
        """Return whether `topic` may be treated as not there yet."""
        return self.is_from_pattern(topic) and self.known is not None and topic not in self.known


def _last(state: RetryCallState) -> Any:  # noqa: ANN401  # tenacity's
    return state.outcome.result() if state.outcome else ({}, {})


def _lacks_leader(partition: TopicPartitionInfo) -> bool:
    return partition.leader is None or partition.leader.id < 0  # type: ignore[redundant-expr]  # its types lack None


def _unavailable(properties: Mapping[str, str], error: KafkaException) -> KafkaUnavailable:
    return KafkaUnavailable(f"{properties['bootstrap.servers']}: {error.args[0].str()}")
