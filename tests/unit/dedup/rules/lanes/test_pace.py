"""Records that come singly are taken several at a time; no other records wait."""

from dedup.rules.lanes.pace import Pace


def test_the_first_record_after_a_pause_waits_for_nothing() -> None:
    pace = Pace(500, 0.001)
    assert pace.early(10.0) <= 0
    pace.found(1, 10.0)
    assert pace.early(10.002) <= 0


def test_records_that_come_singly_gather_for_a_millisecond_at_most() -> None:
    pace = Pace(500, 0.001)
    pace.found(1, 10.0)
    assert 0.0005 < pace.early(10.0004) < 0.001
    assert pace.early(10.00101) <= 0


def test_a_poll_that_found_nothing_or_many_is_followed_at_once() -> None:
    pace = Pace(500, 0.001)
    for found in (0, 500):
        pace.found(1, 10.0)
        pace.found(found, 10.0)
        assert pace.early(10.0) <= 0


def test_a_whole_batch_is_followed_at_once_however_small_it_is() -> None:
    pace = Pace(2, 0.001)
    pace.found(2, 10.0)
    assert pace.early(10.0) <= 0
    pace.found(1, 10.0)
    assert pace.early(10.0) > 0


def test_polls_become_rarer_once_nothing_has_come_for_some_seconds() -> None:
    pace = Pace(500)
    assert pace.idle(100.0) == 0.1
    pace.found(0, 100.0)
    assert pace.idle(104.9) == 0.1
    assert pace.idle(105.1) == 0.5
    assert pace.idle(105.1, is_stuck=True) == 0.1
    pace.found(1, 110.0)
    pace.found(0, 111.0)
    assert pace.idle(114.9) == 0.1
    assert pace.idle(115.1) == 0.5
