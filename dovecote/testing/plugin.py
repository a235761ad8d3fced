"""
Fixtures of pytest, found by the entry point `dovecote`.

pytest imports this module in every project that has Dovecote installed. So it imports nothing but
pytest here; a test that asks for a fixture loads what the fixture needs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dedup.testing import Trial
    from dovecote.testing.databases import OutboxDatabase
    from dovecote.testing.events import OutboxEvents
    from dovecote.testing.servers import Servers, TestedServers
    from dovecote.testing.topics import MakeTopic


@pytest.fixture(scope="session")
def _dovecote_servers(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Servers]":
    """Start no server until a fixture below asks for one."""
    from dovecote.testing.servers import servers

    with servers(tmp_path_factory.getbasetemp()) as found:
        yield found


@pytest.fixture(scope="session")
def dovecote_stack(_dovecote_servers: "Servers") -> "TestedServers":
    """
    Start a Postgres and a Kafka for all tests: `dsn`, and `bootstrap`.

    The workers of pytest-xdist share one. `DOVECOTE_TEST_DSN` and `DOVECOTE_TEST_BOOTSTRAP` name
    servers that run already.
    """
    with _needing("dovecote_stack", "stack"):
        return _dovecote_servers.both()


@pytest.fixture
def outbox_database(_dovecote_servers: "Servers") -> "Iterator[OutboxDatabase]":
    """Yield the connection string of a new database with an outbox and an inbox."""
    from dovecote.testing.databases import new_database

    with _needing("outbox_database", "stack"):
        dsn = _dovecote_servers.postgres()
    with new_database(dsn) as database:
        yield database


@pytest.fixture
def outbox_events(outbox_database: "OutboxDatabase") -> "OutboxEvents":
    """Read the events in `outbox_database`; through a connection also before its commit."""
    from dovecote.testing.events import OutboxEvents

    return OutboxEvents(outbox_database)


@pytest.fixture
def kafka_topic(_dovecote_servers: "Servers") -> "Iterator[MakeTopic]":
    """Make topics in the Kafka of `dovecote_stack`, which are deleted at the end."""
    with _needing("kafka_topic", "stack"):
        from dovecote.testing.topics import topics

        bootstrap = _dovecote_servers.kafka()
    with topics(bootstrap) as make:
        yield make


@pytest.fixture
def trial() -> "Callable[..., Trial]":
    """Make trials of handlers: `trial(handle, tx=…)`, as `dedup.testing.Trial`."""
    with _needing("trial", "consume"):
        from dedup.testing import Trial

    return Trial


@contextmanager
def _needing(fixture: str, extra: str) -> Iterator[None]:
    """Say in one line what to install, if a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        from outbox.lazily import advice, of_others

        missing: Any = of_others(error)
        if missing is None:
            raise
        pytest.fail(advice([missing], extra, f"the fixture {fixture}"), pytrace=False)
