"""Ask Kafka about its topics, and make new ones."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own export, but not marked as one
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from outbox.errors import BadSettings, DovecoteError
from outbox.kafka import kafka_logger, topic_id
from outbox.kafka_errors import FORBIDDEN, right, told
from outbox.tokens.source import client_of, for_client

_log = kafka_logger("dovecote.observe.kafka")
_SECONDS = 15.0
_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # its own types say less
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above
_OWN = 1
"""The source of a setting of the topic itself: Kafka's `DYNAMIC_TOPIC_CONFIG`."""


class Partition(NamedTuple):
    """One partition; None where Kafka does not say."""

    number: int
    leader: int | None
    replicas: Sequence[int]
    in_sync: Sequence[int]
    first: int | None
    """The first offset that is kept."""
    end: int | None
    """The offset that the next record gets."""

    @property
    def offsets(self) -> int | None:
        """How many offsets are kept: records, and ends of transactions."""
        return None if self.first is None or self.end is None else self.end - self.first


class Topic(NamedTuple):
    """One topic."""

    name: str
    id: str | None
    partitions: Sequence[Partition]
    config: Mapping[str, str]
    """Its settings."""
    changed: Collection[str]
    """The settings that the topic has of its own."""

    @property
    def offsets(self) -> int | None:
        """How many offsets are kept in all of it."""
        found = [each.offsets for each in self.partitions]
        return None if None in found else sum(each or 0 for each in found)


class TopicAdmin:
    """
    The topics of a cluster.

    A topic costs a share of four requests, however many there are.
    """

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = dict(kafka)
        self._admin = client_of(AdminClient, for_client(self._kafka), _log)

    def names(self, *, internal: bool = False) -> list[str]:
        """Return the topics that we may see; `internal`: Kafka's own too."""
        with self._errors("Describe"):
            found = self._admin.list_topics(timeout=_SECONDS).topics
        return sorted(name for name in found if internal or not name.startswith("__"))

    def hidden(self, names: Sequence[str]) -> list[str]:
        """Return those of these topics of which Kafka says that we may not see them."""
        return [name for name, error in self._ids(names)[1].items() if error.code() in FORBIDDEN]

    def describe(self, names: Sequence[str]) -> list[Topic]:
        """
        Return what Kafka says about topics, in this order.

        Raises:
            DovecoteError: one of them is not there.
        """
        with self._errors("Describe"):
            found = self._admin.list_topics(timeout=_SECONDS)
            missing = [name for name in names if name not in found.topics]
            if missing:
                msg = (
                    f"no topic {', '.join(map(repr, missing))} that we may see; "
                    "`dovecote topic list` shows those that are"
                )
                raise DovecoteError(msg)
            places = [
                TopicPartition(name, number)
                for name in names
                for number in found.topics[name].partitions
            ]
            first, ends = (
                self._offsets(places, _EARLIEST),
                self._offsets(places, _LATEST),
            )
        configs, (ids, _) = self._configs(names), self._ids(names)
        return [
            Topic(
                name,
                ids.get(name),
                [
                    Partition(
                        number,
                        None if each.leader < 0 else each.leader,
                        tuple(each.replicas),
                        tuple(each.isrs),
                        first.get((name, number)),
                        ends.get((name, number)),
                    )
                    for number, each in sorted(found.topics[name].partitions.items())
                ],
                {key: value for key, (value, _) in configs.get(name, {}).items()},
                {key for key, (_, own) in configs.get(name, {}).items() if own},
            )
            for name in names
        ]

    def create(
        self,
        names: Sequence[str],
        *,
        partitions: int | None,
        replicas: int | None,
        config: Mapping[str, str],
    ) -> Iterator[str]:
        """
        Create topics, and yield the name of each; None is the broker's default.

        Raises:
            BadSettings: a topic is there already, or Kafka takes none like this. The others are
                made all the same.
            DovecoteError: Kafka does not do it.
        """
        wanted = [
            NewTopic(
                name,
                num_partitions=partitions or -1,
                replication_factor=replicas or -1,
                config=dict(config),
            )
            for name in names
        ]
        failures: list[DovecoteError] = []
        for name, answer in self._admin.create_topics(wanted, request_timeout=_SECONDS).items():
            try:
                self._created(name, answer)
            except DovecoteError as error:
                failures.append(error)
            else:
                yield name
        if failures:
            raise failures[0]

    def _created(self, name: str, answer: "Future[None]") -> None:
        try:
            answer.result(_SECONDS + 1)
        except KafkaException as error:
            what = error.args[0]
            if what.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                msg = f"topic {name!r} is there already; `dovecote topic show {name}` shows it"
                raise BadSettings(msg) from None
            if what.code() in {
                KafkaError.INVALID_PARTITIONS,
                KafkaError.INVALID_REPLICATION_FACTOR,
                KafkaError.INVALID_CONFIG,
                KafkaError.TOPIC_EXCEPTION,
                KafkaError.POLICY_VIOLATION,
            }:
                msg = f"Kafka takes no topic {name!r} like this: {what.str()}"
                raise BadSettings(msg) from None
            msg = f"topic {name!r} was not made: {told(what, right('Create', 'topic', name))}"
            raise DovecoteError(msg) from error

    def _offsets(
        self, places: Sequence[TopicPartition], which: OffsetSpec
    ) -> dict[tuple[str, int], int]:
        """Return an offset of each partition that Kafka tells it of."""
        found: dict[tuple[str, int], int] = {}
        if not places:
            return found
        wanted = dict.fromkeys(places, which)
        for place, answer in self._admin.list_offsets(wanted, request_timeout=_SECONDS).items():
            try:
                found[place.topic, place.partition] = answer.result(_SECONDS + 1).offset
            except KafkaException as error:
                _log.debug("the offsets of %s are not known: %s", place, error)
        return found

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, tuple[str, bool]]]:
        """Return the settings of topics that we may see, and whether each is the topic's own."""
        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found: dict[str, dict[str, tuple[str, bool]]] = {}
        if not wanted:
            return found
        answers = self._admin.describe_configs(wanted, request_timeout=_SECONDS)
        for resource, answer in answers.items():
            try:
                entries = answer.result(_SECONDS + 1)
            except KafkaException as error:
                if error.args[0].code() not in FORBIDDEN:
                    raise self._failed(error, "DescribeConfigs", resource.name) from error
            else:
                found[resource.name] = {
                    name: (entry.value or "", entry.source == _OWN)
                    for name, entry in entries.items()
                }
        return found

    def _ids(self, names: Sequence[str]) -> tuple[dict[str, str | None], dict[str, KafkaError]]:
        """Return the ids of topics, and why Kafka does not say those of others."""
        if not names:
            return {}, {}
        answers = self._admin.describe_topics(
            TopicCollection(list(names)), request_timeout=_SECONDS
        )
        found: dict[str, str | None] = {}
        errors: dict[str, KafkaError] = {}
        for name, answer in answers.items():
            try:
                found[name] = topic_id(answer.result(_SECONDS + 1).topic_id)
            except KafkaException as error:
                _log.debug("the id of topic %s is not known: %s", name, error)
                errors[name] = error.args[0]
        return found, errors

    @contextmanager
    def _errors(self, operation: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._failed(error, operation, "*") from error

    def _failed(self, error: KafkaException, operation: str, name: str) -> DovecoteError:
        what: Any = error.args[0]
        at = self._kafka.get("bootstrap.servers", "no address")
        return DovecoteError(
            f"Kafka at {at} does not say: {told(what, right(operation, 'topic', name))}"
        )
