"""The fixture that runs relays of an outbox."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fix_stack import Servers
from tests.support.relaying import Relays, installed, relays


@pytest.fixture
def fleet(stack: Servers, database: str, tmp_path: Path) -> Iterator[Relays]:
    """Starts relays of one outbox, in a database of its own."""
    with relays(tmp_path, installed(database), stack.kafka.bootstrap) as started:
        yield started
