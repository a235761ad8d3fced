"""Objects that a worker keeps are left out of the garbage collection after each task."""

import gc
from collections.abc import Iterator

import pytest

from spark_jobs.rows.garbage import rarely_collecting, spare


class Cycle:
    """Garbage that only a search finds."""

    alive = 0

    def __init__(self) -> None:
        self.me = self
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process look like a worker of Spark, and restore it afterwards."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    yield
    gc.unfreeze()
    gc.collect()


@pytest.mark.usefixtures("worker")
def test_a_task_leaves_nothing_to_search() -> None:
    with rarely_collecting():
        thresholds = gc.get_threshold()

    assert gc.get_threshold() < thresholds
    assert gc.get_freeze_count() > len(gc.get_objects())


@pytest.mark.usefixtures("worker")
def test_now_and_then_everything_is_searched() -> None:
    gc.collect()
    made = 200
    for _ in range(made):
        Cycle()
        spare()
        gc.collect()

    assert Cycle.alive < made / 2


def test_elsewhere_nothing_is_left_out() -> None:
    before = gc.get_freeze_count()
    with rarely_collecting():
        pass

    assert gc.get_freeze_count() == before
