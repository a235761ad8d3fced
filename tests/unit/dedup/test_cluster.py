"""Whoever asks a Kafka that is away is told which one it was."""

import pytest

from dedup.cluster import topics
from outbox.errors import DovecoteError


def test_a_kafka_that_is_away_is_named_and_nothing_else_is_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = "127.0.0.1:1"
    with pytest.raises(DovecoteError, match=rf"{where} .*`bootstrap\.servers` right"):
        topics({"bootstrap.servers": where}, timeout=0.3)
    assert capfd.readouterr().err == ""
