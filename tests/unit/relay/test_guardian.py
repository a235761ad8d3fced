"""
Waiting events are counted as often as that is cheap, and a slot is dropped only if necessary.
"""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from relay.guardian import BudgetSpent, Guardian
from relay.metrics import Metrics
from relay.rules.places.progress import Cursor, LogPosition, Progress
from relay.rules.server.slot import Slot
from relay.rules.sharding import Shard

SLOT = Slot("dovecote_5_6", "pgoutput", "shop", 100, 96, "reserved", None, None, None)


class Server:
    """Takes a given time to count, on a clock of its own."""

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


def watching(server: Server) -> Guardian:
    wal = SimpleNamespace(warn_bytes=1, stop_bytes=2)
    settings = cast("Any", SimpleNamespace(schema_name="outbox", wal=wal))
    return Guardian(settings, Shard("shop", 0, 1), server.metrics, clock=server.clock)


def beats(server: Server, *, every: float, within: float) -> int:
    """Beat every `every` seconds; return how many of the beats counted."""
    guardian = watching(server)
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


def test_a_slot_that_holds_back_less_again_is_not_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Measured, then the role was lost before it was acted on; another relay has caught up since.
    slot = replace(SLOT, restart=0)
    found = SimpleNamespace(slot=slot, slot_name=slot.name, beginning=object(), end=5, retained=5)
    monkeypatch.setattr("relay.guardian.look", lambda *_: found)
    guardian = watching(server)
    guardian.beat(cast("Any", None), cast("Progress", SimpleNamespace(cursor=LogPosition(1))))
    with pytest.raises(BudgetSpent):
        guardian.require()
    found.retained = 1
    conn = Mock()
    assert guardian.drop_slot(conn) is None
    conn.execute.assert_not_called()
    guardian.require()


def test_a_slot_that_still_holds_back_too_much_is_dropped_and_named(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(slot=SLOT, slot_name=SLOT.name, retained=3)
    monkeypatch.setattr("relay.guardian.look", lambda *_: found)
    conn = Mock()
    watched = watching(server)
    watched._schema = "shop_outbox"
    refused = watched.drop_slot(conn)
    conn.execute.assert_called_once_with("SELECT pg_drop_replication_slot(%s)", [SLOT.name])
    assert "more than wal.stop_bytes (2), and was dropped" in str(refused)
    # The command must not be about another outbox.
    assert "`dovecote init outbox --schema shop_outbox --capture wal --accept-gap`" in str(refused)


def test_the_limit_of_a_slot_is_shown_while_there_is_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(slot=SLOT, beginning=100, retained=1, end=101)
    monkeypatch.setattr("relay.guardian.look", lambda *_: found)
    progress = cast("Progress", SimpleNamespace(cursor=LogPosition(100)))
    guardian = watching(server)
    guardian.beat(Mock(), progress)
    assert server.metrics.slot_limit_bytes._value.get() == 2
    found.slot = None
    guardian.beat(Mock(), progress)
    assert math.isnan(server.metrics.slot_limit_bytes._value.get())


def test_what_only_the_active_relay_measures_is_unknown_elsewhere() -> None:
    metrics = Metrics("shop")
    measured = (metrics.lag_rows, metrics.lag_seconds, metrics.lag_bytes, metrics.parked)
    slot = (metrics.slot_retained_bytes, metrics.slot_limit_bytes)
    for gauge in (*measured, *slot):
        assert math.isnan(gauge._value.get())
        gauge.set(7)
    metrics.unknown()
    for gauge in (*measured, *slot):
        assert math.isnan(gauge._value.get())
