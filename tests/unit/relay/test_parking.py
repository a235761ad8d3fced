"""Operators' commands are carried out to the end, however long one turn takes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from relay.metrics import Metrics
from relay.parking import Parking
from relay.postgres.parked import Command, Due, Known
from relay.rules.held import Lane, lane_of
from relay.rules.isolation import Isolation
from relay.rules.pace import Pace
from relay.rules.places.progress import Cursor, Origin, Progress, at
from relay.rules.places.snapshot import Snapshot
from relay.rules.row import Key, Row
from tests.support.rows import row

ROW = row(7)
KEY: Key = ("orders", b"k")


class FakeStore:
    """Has one parked event, and the rest of two commands that requeue it."""

    def __init__(self) -> None:
        self.left = [Command(n, "requeue", *KEY, None) for n in (1, 2)]
        self.parked = [Due(1, ROW)]
        self.asked: list[tuple[int, int]] = []

    def tidy(self, last_command: int, requeued: int, passed: int) -> None:
        """Do nothing: the relay before has left nothing but its place."""
        self.tidied = last_command, requeued, passed

    def load(self, *_: object, **__: object) -> Known:
        return Known(len(self.parked), {}, {})

    def lanes(self) -> list[Lane]:
        return [lane_of(KEY)]

    def held_topics(self) -> list[str]:
        return [KEY[0]]

    def commands(self, *, of_aside: bool) -> list[Command]:
        del of_aside
        return list(self.left)

    def due(self, command: Command, *, after: int, **_: int) -> list[Due]:
        self.asked.append((command.number, after))
        return [each for each in self.parked if each.number > after]

    def published(self, events: Sequence[Due]) -> None:
        self.parked = [each for each in self.parked if each not in events]

    def finish(self, command: Command) -> None:
        self.left.remove(command)

    def is_held(self, _: Key) -> bool:
        return bool(self.parked)

    def key_of(self, _: int) -> Key:
        return KEY


class SlowPublisher:
    """Takes a given time for a batch, on a clock of its own."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 100.0, seconds
        self.published: list[Row] = []

    def clock(self) -> float:
        return self.now

    def publish(self, rows: Sequence[Row], _: Progress) -> None:
        self.published += rows
        self.now += self.seconds


def parking_of(mode: str, clock: Callable[[], float]) -> Parking:
    settings = SimpleNamespace(
        progress_topic="p", topics=(), park_after=timedelta(0), batch_bytes=1_000, mode=mode
    )
    return Parking(
        cast("Any", settings),
        Metrics("shop"),
        (Isolation(10), Pace(1_000, 60)),
        dict.fromkeys,
        clock=clock,
    )


@pytest.mark.parametrize(("mode", "requeued"), [("exactly_once", 9), ("at_least_once", 0)])
def test_at_least_once_nothing_is_taken_for_published_by_its_number(
    mode: str, requeued: int
) -> None:
    store, publisher = FakeStore(), SlowPublisher(seconds=0)
    parking = parking_of(mode, publisher.clock)
    begun = at("shop", Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1)), Cursor(), parked=9)
    begun = replace(begun, last_command=1, requeued=9)
    parking.begin(cast("Any", store), begun)
    assert store.tidied == (1, requeued, 9)
    assert parking.obey(cast("Any", publisher), begun) is not None
    # Exactly once, number 1 was published by the first command, and is left to the second one.
    assert publisher.published == [ROW]
    assert store.asked[0] == (1, requeued)


def test_a_requeue_whose_turn_is_over_with_its_last_event_is_finished() -> None:
    store, publisher = FakeStore(), SlowPublisher(seconds=2)
    parking = parking_of("exactly_once", publisher.clock)
    progress = at("shop", Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1)), Cursor(), parked=1)
    parking.begin(cast("Any", store), progress)
    for _ in range(3):
        behind = parking.obey(cast("Any", publisher), progress)
        assert behind is not None
        progress = behind
    assert (publisher.published, store.parked, store.left) == ([ROW], [], [])
    # Now the relay looks rarely: one may have been given while the last event went.
    store.commands = Mock(return_value=[])  # type: ignore[method-assign]
    for _ in range(300):
        publisher.now += 0.1
        assert parking.obey(cast("Any", publisher), progress) == progress
    assert 2 <= store.commands.call_count <= 4
