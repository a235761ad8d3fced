"""A server counts as gone when it has been silent for long, and only then."""

from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from relay.postgres.capture.wal import Timing, WalCapture

SILENT = SimpleNamespace(
    silence=lambda: 60.0, has_come=lambda: False, report=lambda _: None, wait=lambda *_: None
)


@pytest.fixture
def capture() -> WalCapture:
    return WalCapture("", "outbox", batch_rows=10, batch_bytes=1_000, timing=Timing(8.0, 10.0))


def test_a_server_that_says_nothing_is_given_up(capture: WalCapture) -> None:
    with pytest.raises(psycopg.OperationalError, match="nothing on the replication stream for 60"):
        capture._hear(cast("Any", SILENT))


def test_what_it_said_and_nobody_took_is_no_silence(capture: WalCapture) -> None:
    # There was no room for it while the broker was away.
    capture._hear(cast("Any", SimpleNamespace(**{**vars(SILENT), "has_come": lambda: True})))
