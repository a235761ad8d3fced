"""The count of the consumers' effects finds what it should find."""

from itertools import islice

import pytest

from proof.consumers.count import Delivery, EventName, judge, takeovers
from proof.consumers.plan import Kind, plan

WRITTEN = {("t", "a"): 4, ("t", "b"): 2}
HELD: list[EventName] = [("t", "a", n) for n in range(4)] + [("t", "b", n) for n in range(2)]


def effects(a: list[int], b: tuple[int, ...] = (0, 1)) -> list[EventName]:
    return [("t", "a", n) for n in a] + [("t", "b", n) for n in b]


def delivered(*members: int) -> list[Delivery]:
    """Return deliveries of one record each, to these members in turn."""
    return [Delivery(time, member, "t", 0, 7) for time, member in enumerate(members)]


def test_every_effect_once_and_in_order_is_well() -> None:
    verdict = judge(HELD, WRITTEN, effects([0, 1, 2, 3]), [], skew=10)

    assert verdict.is_well
    assert verdict.events == 6


@pytest.mark.parametrize(
    ("a", "wrong"),
    [
        ([0, 1, 3], "lost"),
        ([0, 1, 1, 2, 3], "effects_twice"),
        ([0, 2, 1, 3], "out_of_order"),
        ([0, 1, 2, 3, 4], "surplus"),
        ([-1, 0, 1, 2, 3], "surplus"),
    ],
)
def test_what_is_wrong_is_counted(a: list[int], wrong: str) -> None:
    verdict = judge(HELD, WRITTEN, effects(a), [], skew=10)

    assert getattr(verdict, wrong) == 1
    assert not verdict.is_well


def test_what_was_compacted_away_unseen_is_not_lost() -> None:
    held = [name for name in HELD if name != ("t", "a", 1)]

    assert judge(held, WRITTEN, effects([0, 2, 3]), [], skew=10).is_well
    assert judge(held, WRITTEN, effects([0, 1, 2, 3]), [], skew=10).is_well


def test_repeated_deliveries_are_bounded_by_the_skew_for_each_takeover() -> None:
    assert takeovers(delivered(1, 1, 2, 2, 1)) == 2

    within = judge(HELD, WRITTEN, effects([0, 1, 2, 3]), delivered(1, 2), skew=1)
    assert (within.repeated, within.bound, within.is_well) == (1, 1, True)
    beyond = judge(HELD, WRITTEN, effects([0, 1, 2, 3]), delivered(1, 1), skew=1)
    assert (beyond.repeated, beyond.bound, beyond.is_well) == (1, 0, False)


def test_a_run_without_effects_proves_nothing() -> None:
    assert not judge([], {}, [], [], skew=10).is_well


def test_a_seed_repeats_its_disturbances_and_begins_with_each_kind() -> None:
    first = list(islice(plan(7), 40))

    assert first == list(islice(plan(7), 40))
    assert {each.kind for each in first[:4]} == set(Kind)
    assert first != list(islice(plan(8), 40))
