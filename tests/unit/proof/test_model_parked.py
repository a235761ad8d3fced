"""Parking loses, doubles and reorders nothing wherever a crash strikes; mistakes do."""

from itertools import count

import pytest

from proof.model.parked import WELL, World
from proof.model.parked_stores import Bug
from relay.rules.parking import Policy

SEEDS = 150


@pytest.mark.parametrize("policy", ["hold", "skip"])
def test_a_crash_before_or_after_any_step_does_no_harm(policy: Policy) -> None:
    struck = 0
    for seed in range(4):
        undisturbed = World(seed, policy, crash_at=0)
        assert undisturbed.run() == WELL
        for moment in count(2):
            world = World(seed, policy, crash_at=moment)
            assert world.run() == WELL, (seed, moment)
            if moment > 2 * world.stores.steps + 1:
                break
            struck += 1
    assert struck > 300


@pytest.mark.parametrize("policy", ["hold", "skip"])
def test_crashes_one_after_the_other_do_no_harm(policy: Policy) -> None:
    worlds = [World(seed, policy) for seed in range(SEEDS)]
    assert {world.seed: fate for world in worlds if (fate := world.run()) != WELL} == {}
    assert any(world.stores.dropped for world in worlds)


@pytest.mark.parametrize("bug", list(Bug), ids=str)
def test_each_mistake_is_found(bug: Bug) -> None:
    found = (
        World(seed, policy, bug=bug).run() for seed in range(SEEDS) for policy in ("hold", "skip")
    )
    assert any(fate != WELL for fate in found)
