"""The servers under proof: one of each, or three brokers and a primary with its standby."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there, not declared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from psycopg.conninfo import make_conninfo

from dovecote.devstack import Stack
from dovecote.devstack.kafka.cluster import Cluster
from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.places import LOOPBACK
from dovecote.devstack.postgres.pair import Pair
from dovecote.devstack.postgres.postgres import Postgres

TOPIC = "proof"
"""The topic of most events."""

_SETTINGS: Mapping[str, str] = {"max_prepared_transactions": "20"}
_ADMIN_SECONDS = 60


class World:
    """Postgres and Kafka, and the operations on them."""

    def __init__(self, brokers: int) -> None:
        self.cluster = Cluster() if brokers > 1 else None
        self.pair = Pair(settings=_SETTINGS) if brokers > 1 else None
        self._stack = None if brokers > 1 else Stack(postgres=_SETTINGS)
        self._exits = ExitStack()

    @property
    def dsn(self) -> str:
        """The connection string of services, and of relays apart from their own networks."""
        return self.pair.dsn if self.pair else self.postgres.dsn

    @property
    def postgres(self) -> Postgres:
        """The primary."""
        if self.pair is not None:
            return self.pair.primary
        assert self._stack is not None  # noqa: S101  # one of the two
        return self._stack.postgres

    def postgres_dsn(self, dsn: str) -> str:
        """Return `dsn` without the balancer, for the present primary."""
        return make_conninfo(dsn, host=LOOPBACK, port=self.postgres.port)

    @property
    def bootstrap(self) -> str:
        if self.cluster is not None:
            return self.cluster.bootstrap
        assert self._stack is not None  # noqa: S101  # one of the two
        return self._stack.kafka.bootstrap

    @property
    def brokers(self) -> list[Kafka]:
        if self.cluster is not None:
            return [*self.cluster.brokers]
        assert self._stack is not None  # noqa: S101  # one of the two
        return [self._stack.kafka]

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic, unless it exists."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin = self.admin
        if name not in admin.list_topics(timeout=_ADMIN_SECONDS).topics:
            wanted = NewTopic(name, partitions, config=settings)
            made = admin.create_topics([wanted], operation_timeout=_ADMIN_SECONDS)
            try:
                made[name].result(_ADMIN_SECONDS)
            except KafkaException:
                # The answer may have been lost on the way: the topic exists.
                if name not in admin.list_topics(timeout=_ADMIN_SECONDS).topics:
                    raise

    def alter_topic(self, name: str, setting: str, value: str) -> None:
        """Change a setting of a topic."""
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        [future] = self.admin.incremental_alter_configs([resource]).values()
        future.result(_ADMIN_SECONDS)

    def is_whole(self) -> bool:
        """Return whether each partition has all its copies, as far as the brokers know."""
        try:
            topics = self.admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        return all(
            set(partition.isrs) == set(partition.replicas)
            for topic in topics
            for partition in topic.partitions.values()
        )

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end of each partition of a topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "unused"})
        try:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[
                    1
                ]
                for number in partitions
            }
        finally:
            consumer.close()

    def leader(self, part: str) -> int | None:
        """Return the broker that leads a topic with `part` in its name."""
        try:
            topics = self.admin.list_topics(timeout=5).topics
        except KafkaException:
            return None
        leaders = [
            partition.leader
            for name, topic in topics.items()
            if part in name
            for partition in topic.partitions.values()
        ]
        return next((leader for leader in leaders if leader > 0), None)

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            for each in (self._stack, self.cluster, self.pair):
                if each is not None:
                    exits.enter_context(each)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()
