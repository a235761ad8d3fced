"""Fixtures of tests that kill and pause: servers, a topic and relays of the module's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dovecote.devstack import Stack
from tests.support.fix_stack import new_database, new_topics
from tests.support.relaying import Relays, installed, relays

PARTITIONS = 3


@pytest.fixture
def fleet(module_stack: Stack, tmp_path: Path) -> Iterator[Relays]:
    """Starts relays of one outbox, on servers that the module has for itself."""
    with (
        new_database(module_stack) as database,
        relays(tmp_path, installed(database), module_stack.kafka.bootstrap) as started,
    ):
        yield started


@pytest.fixture
def name(module_stack: Stack) -> Iterator[str]:
    """A topic of some partitions."""
    with new_topics(module_stack) as make:
        yield make(PARTITIONS)
