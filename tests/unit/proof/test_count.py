"""The count finds what it should find."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import pytest

from proof.count import Ledger, Seen, Verdict, judge

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


def test_what_a_server_lost_that_went_back_may_be_seen_once() -> None:
    """Two of three were lost with the server's state, and the next era has one."""
    ledger = Ledger(
        committed={"a": [range(1), range(100, 101)]}, gone={"a": [range(1, 100)]}, said_gone=2
    )
    verdict = judge(ledger, records(a=[0, 1, 2, 100]))
    assert verdict.is_well
    assert verdict.gone == 2
    assert judge(replace(ledger, said_gone=3), records(a=[0, 1, 2, 100])).unsaid == 1
    assert judge(ledger, records(a=[0, 1, 1, 2, 100])).duplicated == 1
    assert judge(ledger, records(a=[0, 1, 100, 2])).out_of_order == 1
    assert judge(ledger, records(a=[0, 1, 2])).lost == 1
    assert judge(ledger, records(a=[0, 1, 2, 100, 101])).duplicated == 1


def test_what_an_operator_gave_up_may_be_missing_and_not_there_twice() -> None:
    ledger = Ledger(committed={"a": [range(3)]}, given_up={("a", 1)})
    assert judge(ledger, records(a=[0, 2])).is_well
    assert judge(ledger, records(a=[0, 1, 2])).is_well
    assert judge(ledger, records(a=[0, 1, 1, 2])).duplicated == 1


def test_at_least_once_may_repeat_as_much_as_its_bound_says() -> None:
    within = Ledger(committed={"a": [range(3)]}, may_repeat=2)
    verdict = judge(within, records(a=[0, 1, 0, 1, 2]))
    assert verdict.is_well
    assert verdict.repeated == 2
    assert judge(within, records(a=[0, 1, 0, 1, 2, 2])).duplicated == 1
    assert judge(within, records(a=[0, 2, 1])).out_of_order == 1


def test_each_fault_is_told_with_the_time_about_which_it_happened() -> None:
    seen = [Seen("a", 0, 10), Seen("a", 2, 30), Seen("a", 2, 40)]
    faults = judge({"a": 3}, seen).faults
    assert [(each.what, each.number, each.at) for each in faults] == [
        ("lost", 1, 30),
        ("repeated", 2, 40),
    ]
