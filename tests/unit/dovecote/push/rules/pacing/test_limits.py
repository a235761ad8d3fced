"""The circuit, the concurrency, the rate, the waits and the windows: decisions without a clock."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.retries.backoff import Failure
from dedup.rules.identity import Identity
from dovecote.push.rules.pacing.breaker import Breaker
from dovecote.push.rules.pacing.limits import Concurrency, Rate
from dovecote.push.rules.pacing.patience import FixedWait, FullJitter
from dovecote.push.rules.pacing.window import Window


def failed(breaker: Breaker, times: int, now: float = 0.0) -> bool:
    return [breaker.failed(now, probe=False) for _ in range(times)][-1]


def test_a_circuit_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(threshold=3)
    assert not failed(breaker, 2)
    breaker.succeeded()
    assert not failed(breaker, 2)
    assert failed(breaker, 1)
    assert breaker.wait(0.0) == 1.0


def test_an_open_circuit_lets_one_probe_pass_at_a_time() -> None:
    breaker = Breaker(threshold=1)
    assert failed(breaker, 1)
    assert breaker.wait(0.5) == 0.5
    assert breaker.wait(1.0) == 0.0
    assert breaker.wait(1.0) is None
    assert breaker.failed(1.5, probe=True)
    assert breaker.wait(1.5) == 2.0
    assert breaker.wait(3.5) == 0.0
    breaker.succeeded()
    assert [breaker.wait(3.5), breaker.wait(3.5)] == [0.0, 0.0]


def test_what_was_sent_before_it_opened_does_not_keep_it_open_for_longer() -> None:
    breaker = Breaker(threshold=1)
    failed(breaker, 1)
    assert not failed(breaker, 50, now=0.9)
    assert breaker.until == 1.0


def test_a_probe_that_came_to_nothing_makes_room_for_the_next() -> None:
    breaker = Breaker(threshold=1)
    failed(breaker, 1)
    assert breaker.wait(1.0) == 0.0
    breaker.abandoned()
    assert breaker.wait(1.0) == 0.0


def test_the_pauses_of_a_circuit_have_a_ceiling_and_none_is_for_ever() -> None:
    breaker, now = Breaker(threshold=1, ceiling=60.0), 0.0
    failed(breaker, 1)
    for _ in range(200):
        now = breaker.until
        assert breaker.wait(now) == 0.0
        breaker.failed(now, probe=True)
        assert breaker.until - now <= 60.0


def test_a_circuit_of_threshold_zero_never_opens() -> None:
    assert not failed(Breaker(threshold=0), 1000)


def test_answers_about_records_open_it_when_nothing_but_them_comes() -> None:
    breaker = Breaker(threshold=3, refusals_threshold=5)
    assert not any(breaker.refused(0.0, probe=False) for _ in range(4))
    breaker.succeeded()
    assert not any(breaker.refused(0.0, probe=False) for _ in range(4))
    assert breaker.refused(0.0, probe=False)
    assert breaker.wait(1.0) == 0.0
    assert breaker.refused(1.0, probe=True)
    assert breaker.wait(1.0) == 2.0
    breaker.succeeded()
    assert breaker.closed


def test_an_endpoint_that_failed_and_judges_records_again_is_back() -> None:
    breaker = Breaker(threshold=3, refusals_threshold=5)
    failed(breaker, 3)
    assert not breaker.refused(1.0, probe=True)
    assert breaker.closed


def test_failures_are_in_a_row_whatever_refusals_lie_between() -> None:
    breaker = Breaker(threshold=3, refusals_threshold=5)
    opened = [
        each
        for _ in range(3)
        for each in (breaker.failed(0.0, probe=False), breaker.refused(0.0, probe=False))
    ]
    assert opened == [False, False, False, False, True, False]


def test_a_lone_record_opens_the_circuit_before_its_attempts_are_used_up() -> None:
    assert Breaker().threshold < FullJitter().max_attempts


def test_an_overload_halves_the_requests_at_a_time_once_a_round() -> None:
    limit = Concurrency(64)
    limit.overloaded(10.0)
    limit.overloaded(10.5)
    assert limit.limit == 32
    limit.overloaded(11.0)
    assert limit.limit == 16


def test_successes_bring_one_more_a_round_and_never_more_than_allowed() -> None:
    limit = Concurrency(64)
    limit.overloaded(0.0)
    for _ in range(33):
        limit.succeeded(limit.limit)
    assert limit.limit == 33
    for _ in range(10_000):
        limit.succeeded(limit.limit)
    assert limit.limit == 64


def test_who_does_not_use_the_limit_does_not_raise_it() -> None:
    limit = Concurrency(64)
    limit.overloaded(0.0)
    for _ in range(1000):
        limit.succeeded(3)
    assert limit.limit == 32


def test_after_an_outage_it_begins_with_one_and_doubles_each_round() -> None:
    limit = Concurrency(64)
    limit.begin_anew()
    seen = [limit.limit]
    for _ in range(6):
        for _ in range(limit.limit):
            limit.succeeded(limit.limit)
        seen.append(limit.limit)
    assert seen == [1, 2, 4, 8, 16, 32, 64]


@given(st.lists(st.sampled_from(["ok", "over", "anew"]), max_size=200), st.integers(1, 100))
def test_the_limit_stays_between_one_and_what_is_allowed(steps: list[str], most: int) -> None:
    limit = Concurrency(most)
    for now, step in enumerate(steps):
        match step:
            case "ok":
                limit.succeeded(limit.limit)
            case "over":
                limit.overloaded(float(now))
            case _:
                limit.begin_anew()
        assert 1 <= limit.limit <= most


@given(st.lists(st.floats(0, 0.3), min_size=2, max_size=60), st.floats(1, 200))
def test_a_rate_is_kept_over_any_stretch_of_time(gaps: list[float], per_second: float) -> None:
    rate, now, sent = Rate(per_second), 0.0, []
    for gap in gaps:
        now += gap
        sent.append(now + rate.reserve(now, most=1e9))
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            allowed = (sent[last] - sent[first] + 0.1) * per_second + 1 + 1e-6
            assert last - first <= allowed


@pytest.mark.parametrize("per_second", [1e-9, 1e-300, 5e-324])
def test_whatever_the_rate_a_wait_can_be_waited(per_second: float) -> None:
    rate = Rate(per_second)
    assert rate.reserve(100.0, most=2.0) == 0.0
    assert 2.0 < rate.reserve(100.0, most=2.0) <= 3600.0
    assert 2.0 < rate.reserve(1e9, most=2.0) <= 3600.0


def test_a_wait_that_is_too_long_reserves_nothing() -> None:
    rate = Rate(1.0)
    assert rate.reserve(100.0, most=2.0) == 0.0
    assert [rate.reserve(100.0, most=2.0) for _ in range(4)] == pytest.approx([0.9, 1.9, 2.9, 2.9])


def failure(attempt: int, id_: str = "e1") -> Failure:
    return Failure(identity=Identity("/s", id_), attempt=attempt, seconds=0.0, error="x")


@given(st.integers(1, 2000), st.text(max_size=10))
def test_jitter_is_full_and_bounded_by_a_wait_that_doubles(attempt: int, id_: str) -> None:
    waits = FullJitter(max_attempts=3000)
    wait = waits.after(failure(attempt, id_))
    assert wait is not None
    assert timedelta(0) < wait <= min(timedelta(seconds=2 ** min(attempt - 1, 20)), waits.ceiling)
    assert wait == waits.after(failure(attempt, id_))


def test_jitter_spreads_what_failed_together_over_the_whole_wait() -> None:
    waits = [FullJitter().after(failure(5, f"e{n}")) for n in range(400)]
    seconds = sorted(wait.total_seconds() for wait in waits if wait is not None)
    assert seconds[0] < 1.0
    assert seconds[-1] > 15.0
    assert 7.0 < seconds[200] < 9.0


def test_attempts_are_counted_as_they_are_named() -> None:
    assert FullJitter(max_attempts=3).after(failure(2)) is not None
    assert FullJitter(max_attempts=3).after(failure(3)) is None


@pytest.mark.parametrize("resends", [1, 2, 5])
def test_n_resends_are_n_after_the_first_send(resends: int) -> None:
    fixed = FixedWait(delay=timedelta(seconds=1), resends=resends)
    waits = [fixed.after(failure(sends)) for sends in range(1, resends + 2)]
    assert waits == [timedelta(seconds=1.001)] * resends + [None]


def test_no_number_of_resends_means_without_end() -> None:
    assert FixedWait(delay=timedelta(0)).after(failure(10**9)) == timedelta(milliseconds=1)


def test_a_window_lets_the_first_few_begin_whatever_gaps_there_are() -> None:
    window = Window(3)
    assert [window.begins(offset) for offset in (5, 9, 1000, 1001, 2000)] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert [window.finished(offset) for offset in (9, 1000, 5)] == [False, False, True]
    window.committed(1001)
    assert window.begins(1001)
    assert window.begins(2000)


def test_a_window_of_one_lets_one_begin_after_the_other_is_committed() -> None:
    window = Window(1)
    assert window.begins(3)
    assert not window.begins(8)
    assert window.begins(3)  # to be tried again
    assert window.finished(3)
    assert not window.begins(8)
    window.committed(4)
    assert window.begins(8)


def test_a_part_of_a_bundle_makes_no_room_for_the_next_one() -> None:
    window = Window(3, whole=True)
    assert [window.begins(offset) for offset in (2, 5, 6, 9)] == [True, True, True, False]
    window.committed(6)
    assert not window.begins(9)
    window.committed(7)
    assert window.begins(9)


def test_a_bundle_that_is_not_full_waits_for_nobody() -> None:
    window = Window(3, whole=True)
    assert window.begins(2)
    window.committed(3)
    assert [window.begins(offset) for offset in (4, 5, 6, 7)] == [True, True, True, False]


@given(st.integers(1, 6), st.lists(st.integers(1, 5), min_size=1, max_size=40), st.data())
def test_no_record_begins_before_the_bundle_before_it_is_committed(
    size: int, gaps: list[int], data: st.DataObject
) -> None:
    window, offsets, at = Window(size, whole=True), [], 0
    for gap in gaps:
        at += gap
        offsets.append(at)
    for first in range(0, len(offsets), size):
        bundle = offsets[first : first + size]
        for position in sorted(data.draw(st.lists(st.sampled_from(bundle)))):
            window.committed(position)
            assert [o for o in offsets[first:] if window.begins(o)] == bundle
        window.committed(bundle[-1] + 1)


@given(st.integers(1, 10), st.lists(st.integers(1, 5), min_size=1, max_size=50), st.data())
def test_no_more_than_its_size_is_ever_begun_and_uncommitted(
    size: int, gaps: list[int], data: st.DataObject
) -> None:
    window, offsets, at = Window(size), [], 0
    for gap in gaps:
        at += gap
        offsets.append(at)
    position = 0
    while position <= offsets[-1]:
        begun = [offset for offset in offsets if offset >= position and window.begins(offset)]
        assert begun == [offset for offset in offsets if offset >= position][:size]
        for offset in data.draw(st.permutations(begun)):
            window.finished(offset)
        position = data.draw(st.sampled_from(begun)) + 1
        window.committed(position)
