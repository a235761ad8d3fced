"""The count finds what it is there to find."""

from collections.abc import Callable
from itertools import chain

import pytest

from proof.count import Seen, Verdict, judge

COMMITTED = {"a": 4, "b": 2}


def records(**keys: list[int]) -> list[Seen]:
    return list(chain(*([Seen(key, number) for number in keys[key]] for key in keys)))


def test_every_event_once_and_in_order_is_well() -> None:
    verdict = judge(COMMITTED, records(a=[0, 1, 2, 3], b=[0, 1]))
    assert verdict == Verdict(events=6, lost=0, duplicated=0, out_of_order=0)
    assert verdict.is_well


@pytest.mark.parametrize(
    ("a", "told", "count"),
    [
        ([0, 1, 3], lambda verdict: verdict.lost, 1),
        ([], lambda verdict: verdict.lost, 4),
        ([0, 1, 1, 2, 3], lambda verdict: verdict.duplicated, 1),
        ([0, 1, 0, 1, 2, 3], lambda verdict: verdict.duplicated, 2),
        ([0, 1, 2, 3, 4], lambda verdict: verdict.duplicated, 1),
        ([0, 2, 1, 3], lambda verdict: verdict.out_of_order, 1),
        ([3, 2, 1, 0], lambda verdict: verdict.out_of_order, 3),
    ],
    ids=["a gap", "nothing", "a copy", "a batch again", "rolled back", "a swap", "backwards"],
)
def test_what_is_wrong_is_counted(
    a: list[int], told: Callable[[Verdict], int], count: int
) -> None:
    verdict = judge(COMMITTED, records(a=a, b=[0, 1]))
    assert told(verdict) == count
    assert not verdict.is_well


def test_a_copy_far_behind_the_first_is_a_copy_and_no_disorder() -> None:
    verdict = judge(COMMITTED, records(a=[0, 1, 2, 3, 0], b=[0, 1]))
    assert (verdict.lost, verdict.duplicated, verdict.out_of_order) == (0, 1, 0)


def test_a_key_that_nobody_committed_is_surplus() -> None:
    assert judge(COMMITTED, records(a=[0, 1, 2, 3], b=[0, 1], c=[0])).duplicated == 1


def test_a_run_without_events_proves_nothing() -> None:
    assert not judge({}, []).is_well
