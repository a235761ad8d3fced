"""An offset that does not move although its partition has records is noticed."""

import pytest

from dedup.health import Health
from dedup.rules.unmoved import Unmoved, standing, summed
from spark_jobs.query import watching

PLACE = ("orders", 3)


def test_only_an_offset_that_stands_still_before_its_end_is_trouble() -> None:
    unmoved = Unmoved(after=60)
    assert unmoved.seconds(PLACE, 5, 5, 0) == 0
    assert unmoved.seconds(PLACE, 5, 9, 100) == 0
    assert unmoved.seconds(PLACE, 5, 12, 150) == 50
    assert not unmoved.is_trouble(50)
    assert unmoved.is_trouble(unmoved.seconds(PLACE, 5, 12, 161))
    assert unmoved.seconds(PLACE, 6, 12, 170) == 0
    assert unmoved.seconds(PLACE, 12, 12, 300) == 0
    assert unmoved.seconds(PLACE, 12, 13, 400) == 0


def test_a_record_that_is_not_due_yet_does_not_stand_still() -> None:
    unmoved = Unmoved(after=60)
    assert unmoved.seconds(PLACE, 5, 9, 0, due=3_600) == 0
    assert unmoved.seconds(PLACE, 5, 9, 3_000, due=3_600) == 0
    assert unmoved.seconds(PLACE, 5, 9, 3_700, due=3_600) == 100


def test_a_partition_that_is_gone_begins_anew() -> None:
    unmoved = Unmoved(after=60)
    unmoved.seconds(PLACE, 5, 9, 0)
    unmoved.forget({("orders", 4)})
    assert unmoved.seconds(PLACE, 5, 9, 100) == 0


def test_many_partitions_make_a_short_text() -> None:
    assert summed([]) == ""
    found = [standing((f"t{n}", 0), 1, 3, seconds=61.4, why="no") for n in range(5)]
    assert found[0] == "t0/0 has stood at offset 1 for 61 s, with 2 to its end: no"
    assert summed(found).endswith("to its end: no; and 2 more partitions")


def test_a_consumer_says_it_and_stays_ready() -> None:
    health = Health()
    health.joined()
    health.unmoved = "orders/3 has stood at offset 5"
    report = health.ready()
    assert report.ok
    assert report.reason == "progressing, but orders/3 has stood at offset 5"


def test_a_spark_job_says_it_and_from_where_it_would_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr("spark_jobs.query.watching.time.monotonic", lambda: now)
    health = watching.Health(stall_after=60)
    for _ in range(3):
        health.progressed()
        health.reached({"orders": {3: 5, 4: 7}}, {PLACE: 4, ("orders", 4): 0})
        now += 40
    assert health.ready().ok
    assert health.ready().reason == (
        "progressing, but orders/3 has stood at offset 5 for 80 s, with 4 to its end: batches are "
        "finished, and none has read from there"
    )
    now += 60
    assert health.ready().reason == (
        "no batch was finished for 100 s; the next one reads from orders/3 at offset 5; "
        "orders/4 at offset 7 on"
    )
