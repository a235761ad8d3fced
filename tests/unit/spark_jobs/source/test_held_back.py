"""A query says which partitions an open transaction holds back, for as long as it does."""

import logging
from collections.abc import Mapping, Sequence

import pytest
from prometheus_client import generate_latest

from outbox.errors import DovecoteError, NoToken
from spark_jobs.errors import KafkaUnavailable
from spark_jobs.query.metrics import Metrics
from spark_jobs.query.watching import Health
from spark_jobs.source.held_back import Held, HeldBack
from spark_jobs.source.offsets import Offsets


class Ends:
    """The ends of a topic with two partitions."""

    def __init__(self) -> None:
        self.stable: Mapping[int, int] = {0: 42, 1: 7}
        self.logs: Mapping[int, int] = {0: 57, 1: 7}
        self.away: DovecoteError | None = None

    def latest(self, topics: Sequence[str], *, known: Sequence[str]) -> Offsets:
        del topics, known
        if self.away is not None:
            raise self.away
        return Offsets({"orders": self.stable})

    def written(self, topics: Sequence[str], *, known: Sequence[str]) -> Offsets:
        del topics, known
        return Offsets({"orders": self.logs})


def test_a_transaction_that_stays_open_is_said_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_000.0
    monkeypatch.setattr("spark_jobs.source.held_back.time.monotonic", lambda: now)
    ends, metrics, health = Ends(), Metrics("clicks"), Health(120)
    health.progressed()

    def found(held: Held) -> None:
        metrics.held_back(held.partitions)
        health.held(held.text)

    held = HeldBack(ends, ["orders"], after=60, found=found)
    for passed in (0, 60):
        now += passed
        held.look()
        assert health.ready().reason == "progressing"
    for _ in range(3):
        now += 10
        held.look()
        assert health.ready().ok
        assert "but orders/0 is held back at offset 42: a trans" in health.ready().reason
        assert f"open there for {now - 1_000:.0f} s, and the log goes on to 57" in (
            health.ready().reason
        )
    lines = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(lines) == 1
    assert 'dovecote_spark_held_back{partition="0",query="clicks",topic="orders"} 1.0' in (
        generate_latest(metrics.registry).decode()
    )
    # A broker that does not answer is not taken for an end, nor is a token that does not come.
    for ends.away in (KafkaUnavailable("nobody answers"), NoToken("no provider answers")):
        held.look()
        assert "held back" in health.ready().reason
    ends.away = None
    health.progressed()
    # The next one has just begun.
    ends.stable, ends.logs = {0: 57, 1: 7}, {0: 60, 1: 9}
    held.look()
    assert health.ready().reason == "progressing"
    assert "held_back{" not in generate_latest(metrics.registry).decode()
