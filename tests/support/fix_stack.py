"""Fixtures that give tests their own database, topics and servers."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack import Stack
from dovecote.devstack.kafka.cluster import Cluster
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.pair import Pair
from dovecote.devstack.postgres.postgres import Postgres, server_user
from dovecote.devstack.versions import KAFKA
from dovecote.testing.databases import empty_database
from tests.support.clients import no_clients_left
from tests.support.fix_containers import containers
from tests.support.waiting import until

_ADMIN_SECONDS = 90


NEW_GROUPS = pytest.mark.skipif(
    KAFKA.default.startswith("3."), reason="this Kafka has no groups with the protocol `consumer`"
)
"""The mark of tests with KIP-848, which `make matrix` does not run on an older Kafka."""


class HasDsn(Protocol):
    """A Postgres, for its superuser."""

    @property
    def dsn(self) -> str: ...


class HasBootstrap(Protocol):
    """A Kafka, for its clients."""

    @property
    def bootstrap(self) -> str: ...


class Servers(Protocol):
    """A Postgres and a Kafka, embedded or in containers."""

    @property
    def postgres(self) -> HasDsn: ...
    @property
    def kafka(self) -> HasBootstrap: ...


class MakeTopic(Protocol):
    """Creates topics with random names; `config` is the topic's, with underscores for dots."""

    def __call__(self, partitions: int = 1, **config: str) -> str: ...


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """
    Servers that all tests share. Create what you need in them, and never stop them.

    They are a `Stack`; tests that are marked `contract` run a second time, with `containers`.
    """
    if getattr(request, "param", "embedded") == "containers":
        with containers() as running:
            yield running
    else:
        yield request.getfixturevalue("embedded")


@pytest.fixture(scope="session")
def embedded() -> Iterator[Stack]:
    """The stack that is available without containers."""
    with Stack(fsync=False) as running:
        yield running


@pytest.fixture
def own_stack() -> Iterator[Stack]:
    """Servers of this test alone, which may do anything to them, and leaves no client of them."""
    with Stack(fsync=False) as running, no_clients_left():
        yield running


@pytest.fixture(scope="module")
def module_stack() -> Iterator[Stack]:
    """Servers of this module's tests alone; each test must leave them running, without clients."""
    with Stack(fsync=False) as running, no_clients_left():
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers of this module's tests alone; each test must leave them running and healed."""
    with Cluster() as running, no_clients_left():
        yield running


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield a primary and its synchronous standby, for this test alone."""
    with Pair() as running:
        yield running


@pytest.fixture(scope="module")
def lazy() -> Iterator[Postgres]:
    """A server of this module's tests, which writes to disk only what it must, and no earlier."""
    folder = temporary_directory(server_user())
    settings = {"wal_writer_delay": "10s", "synchronous_commit": "off", "autovacuum": "off"}
    with Postgres(folder, fsync=False, settings=settings, temporary=True) as postgres:
        yield postgres


@pytest.fixture
def database(stack: Servers) -> Iterator[str]:
    """The connection string of a new database, which is dropped at the end."""
    with new_database(stack) as conninfo:
        yield conninfo


@pytest.fixture
def topic(stack: Servers) -> Iterator[MakeTopic]:
    """Creates topics in the shared Kafka, which are deleted at the end."""
    with new_topics(stack) as make:
        yield make


def new_database(stack: Servers) -> AbstractContextManager[str]:
    """Yield a database with a random name in `stack`, and drop it."""
    return empty_database(stack.postgres.dsn)


@contextmanager
def new_topics(stack: Servers) -> Iterator[MakeTopic]:
    """Yield a function that creates topics in `stack`, and delete its topics."""
    with topics_of(stack.kafka) as make:
        yield make


@contextmanager
def topics_of(kafka: HasBootstrap) -> Iterator[MakeTopic]:
    """Yield a function that creates topics in `kafka` with any replication, and delete them."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made: list[str] = []

    def make(partitions: int = 1, **config: str) -> str:
        name = f"test-{uuid4().hex}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        wanted = NewTopic(name, partitions, config=settings)
        admin.create_topics([wanted])[name].result(_ADMIN_SECONDS)
        # The controller knows the topic; the broker may be a moment late.
        until(
            lambda: len(admin.list_topics(name).topics[name].partitions) == partitions,
            within=_ADMIN_SECONDS,
            what=f"topic {name} at the broker",
        )
        made.append(name)
        return name

    yield make
    if made:
        for deleted in admin.delete_topics(made).values():
            try:
                deleted.result(_ADMIN_SECONDS)
            except KafkaException as error:
                # The test may have deleted the topic itself.
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
