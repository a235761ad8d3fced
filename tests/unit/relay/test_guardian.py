"""What waits is counted at every beat, unless the count itself is what takes the time."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from relay.guardian import Guardian
from relay.metrics import Metrics
from relay.progress import Cursor, Progress
from relay.sharding import Shard


class Server:
    """Counts for as long as it is told to, on a clock of its own."""

    def __init__(self, metrics: Metrics) -> None:
        self.now, self.takes, self.counted, self.metrics = 1000.0, 0.0, 0, metrics

    def clock(self) -> float:
        return self.now

    def waiting(self, *_: object) -> tuple[int, float]:
        self.counted += 1
        self.now += self.takes
        return self.counted, 0.5


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(Metrics("shop"))
    monkeypatch.setattr("relay.guardian.waiting", server.waiting)
    no_slot = SimpleNamespace(slot=None)
    monkeypatch.setattr("relay.guardian.look", lambda *_: no_slot)
    return server


def beats(server: Server, *, every: float, within: float) -> int:
    """Beat `every` so many seconds; return how many of the beats counted."""
    wal = SimpleNamespace(warn_bytes=1, stop_bytes=2)
    settings = cast("Any", SimpleNamespace(schema_name="outbox", wal=wal))
    guardian = Guardian(settings, Shard("shop", 0, 1), server.metrics, clock=server.clock)
    progress = cast("Progress", SimpleNamespace(cursor=Cursor()))
    began, counted = server.now, server.counted
    while server.now < began + within:
        guardian.beat(cast("Any", None), progress)
        server.now += every
    return server.counted - counted


def test_a_quick_count_is_part_of_every_beat(server: Server) -> None:
    server.takes = 0.002
    assert beats(server, every=1, within=60) == 60
    assert server.metrics.lag_rows._value.get() == 60


def test_a_long_count_takes_two_hundredths_of_the_time(server: Server) -> None:
    server.takes = 0.1
    assert 11 <= beats(server, every=0.5, within=60) <= 12


def test_a_server_that_was_slow_is_asked_again_after_ten_seconds(server: Server) -> None:
    server.takes = 30
    assert beats(server, every=1, within=400) == 10
