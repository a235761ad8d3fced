"""The protocol loses, doubles and reorders nothing in any world that a seed makes; mistakes do."""

from collections import Counter

import pytest

from proof.model.at_least_once import Repeating
from proof.model.relay import Relay
from proof.model.simulation import LOSSES, Trouble, simulate
from proof.model.world import AT_LEAST_ONCE, Bug, Point

SEEDS = 2_000
MOST_SEEDS = 6_000


def test_the_protocol_holds_with_every_trouble_at_every_step() -> None:
    met: Counter[tuple[Point, Trouble]] = Counter()
    wrong = {}
    events = accepted = 0
    for seed in range(SEEDS):
        outcome = simulate(seed)
        met += outcome.troubles
        events += outcome.verdict.events
        accepted += outcome.accepted
        if not outcome.is_well:
            wrong[seed] = outcome
    assert wrong == {}
    assert events > 10 * SEEDS
    assert accepted > SEEDS / 10
    points = [point for point in Point if point is not Point.ROLE]
    assert met.keys() == {(point, trouble) for point in points for trouble in Trouble}


def test_at_least_once_repeats_two_batches_at_most_for_each_takeover() -> None:
    outcomes = {seed: simulate(seed, kind=Repeating) for seed in range(SEEDS // 2)}
    assert {seed: each for seed, each in outcomes.items() if not each.is_well} == {}
    assert any(each.verdict.duplicated for each in outcomes.values())
    met = {
        trouble for each in outcomes.values() for at, trouble in each.troubles if at is Point.ROLE
    }
    assert met == {*Trouble} - LOSSES


@pytest.mark.parametrize("bug", list(Bug), ids=str)
def test_each_mistake_is_found(bug: Bug) -> None:
    kind = Repeating if bug in AT_LEAST_ONCE else Relay
    assert not all(simulate(seed, bug, kind).is_well for seed in range(MOST_SEEDS))


def test_a_seed_makes_the_same_world_again() -> None:
    for seed in range(20):
        assert simulate(seed, Bug.NO_FENCE) == simulate(seed, Bug.NO_FENCE)
