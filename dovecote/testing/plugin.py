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
    from dovecote.testing.servers import TestedServers
    from dovecote.testing.topics import MakeTopic


@pytest.fixture(scope="session")
def dovecote_stack(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[TestedServers]":
    """
    Start a Postgres and a Kafka for all tests: `dsn`, and `bootstrap`.

    The workers of pytest-xdist share one. `DOVECOTE_TEST_DSN` and `DOVECOTE_TEST_BOOTSTRAP` name
    servers that run already.
    """
    with _needing("dovecote_stack", "stack"):
        from dovecote.testing.servers import servers

        made = servers(tmp_path_factory.getbasetemp())
    with made as running:
        yield running


@pytest.fixture
def outbox_database(dovecote_stack: "TestedServers") -> "Iterator[OutboxDatabase]":
    """Yield the connection string of a new database with an outbox and an inbox."""
    from dovecote.testing.databases import new_database

    with new_database(dovecote_stack.dsn) as database:
        yield database


@pytest.fixture
def outbox_events(outbox_database: "OutboxDatabase") -> "OutboxEvents":
    """Read the events in `outbox_database`; through a connection also before its commit."""
    from dovecote.testing.events import OutboxEvents

    return OutboxEvents(outbox_database)


@pytest.fixture
def kafka_topic(dovecote_stack: "TestedServers") -> "Iterator[MakeTopic]":
    """Make topics in the Kafka of `dovecote_stack`, which are deleted at the end."""
    with _needing("kafka_topic", "stack"):
        from dovecote.testing.topics import topics
    with topics(dovecote_stack.bootstrap) as make:
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
