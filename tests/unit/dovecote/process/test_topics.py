"""The error for a Kafka that is away names that Kafka."""

import pytest

from dovecote.process.topics import topics
from outbox.errors import DovecoteError


def test_a_kafka_that_is_away_is_named_and_its_client_is_silent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = "127.0.0.1:1"
    with pytest.raises(DovecoteError, match=rf"{where} .*`bootstrap\.servers` right"):
        topics({"bootstrap.servers": where}, timeout=0.3)
    # Clients of other tests that are not collected yet may log too, about other brokers.
    assert f"{where}/" not in capfd.readouterr().err
