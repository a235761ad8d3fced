"""The protocol loses, doubles and reorders nothing in any world that a seed makes; mistakes do."""

from collections import Counter

import pytest

from proof.model.relay import Bug, Point
from proof.model.simulation import Simulation, Trouble

SEEDS = 3_000


def test_the_protocol_holds_with_every_trouble_at_every_step() -> None:
    met: Counter[tuple[Point, Trouble]] = Counter()
    wrong = {}
    events = 0
    for seed in range(SEEDS):
        simulation = Simulation(seed)
        verdict = simulation.run()
        met += simulation.troubles
        events += verdict.events
        if verdict.lost or verdict.duplicated or verdict.out_of_order:
            wrong[seed] = verdict
    assert wrong == {}
    assert events > 10 * SEEDS
    assert met.keys() == {(point, trouble) for point in Point for trouble in Trouble}


@pytest.mark.parametrize("bug", list(Bug), ids=str)
def test_each_mistake_is_found(bug: Bug) -> None:
    verdicts = (Simulation(seed, bug).run() for seed in range(SEEDS))
    assert any(each.lost or each.duplicated or each.out_of_order for each in verdicts)


def test_a_seed_makes_the_same_world_again() -> None:
    for seed in range(20):
        first, again = Simulation(seed, Bug.NO_FENCE), Simulation(seed, Bug.NO_FENCE)
        assert first.run() == again.run()
        assert first.troubles == again.troubles
