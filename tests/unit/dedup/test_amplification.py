"""
A loop main → handler → retry topic → main multiplies no events, however many sends are double.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.identity import Identity
from dedup.rules.policies.policies import (
    POLICIES,
    Failed,
    Handled,
    Policy,
    Verdict,
    by_key,
    exact,
    first_match,
)
from dedup.rules.policies.results import Again, Result, Retry

EVENTS = [f"event {n}" for n in range(20)]
ROUNDS = 10
AMBIGUOUS = 0.2

Copy = tuple[str, int]
Stage = Callable[[Sequence[Copy]], Iterable[Verdict[Copy]]]

unfinished: Result = Again(timedelta(seconds=1))
failing: Result = Retry("still down")
seeds = given(st.integers(0, 2**32))


def amplification(stage: Stage, seed: int) -> list[float]:
    """Return, round by round, how many records there are per event in the loop."""
    chance = random.Random(seed)  # a network, not a secret
    topic = sent([(event, 0) for event in EVENTS], chance)
    per_round = []
    for _ in range(ROUNDS):
        chance.shuffle(topic)
        round_trips = [
            verdict.record
            for _, copies in by_key(topic, lambda copy: copy[0])
            for verdict in stage(copies)
            if isinstance(verdict, Handled | Failed)
        ]
        per_round.append(len(round_trips) / len(EVENTS))
        topic = sent([(event, round_ + 1) for event, round_ in round_trips], chance)
    return per_round


def sent(copies: Iterable[Copy], chance: random.Random) -> list[Copy]:
    """Send each; an ambiguous timeout writes the record a second time, with the same id."""
    return [copy for one in copies for copy in [one] * (1 + (chance.random() < AMBIGUOUS))]


def stage(policy: Policy, result: Result) -> Stage:
    def decide(copies: Sequence[Copy]) -> Iterator[Verdict[Copy]]:
        return policy(
            copies,
            matches=lambda _: True,
            handle=lambda _: result,
            identity=lambda copy: Identity("/s", *copy),
        )

    return decide


@pytest.mark.parametrize("name", POLICIES)
@seeds
def test_ten_rounds_of_unfinished_events_stay_single(name: str, seed: int) -> None:
    assert amplification(stage(POLICIES[name], unfinished), seed) == [1.0] * ROUNDS


@pytest.mark.parametrize("name", ["exact", "latest"])
@seeds
def test_ten_rounds_of_failing_events_stay_single(name: str, seed: int) -> None:
    assert amplification(stage(POLICIES[name], failing), seed) == [1.0] * ROUNDS


@seeds
def test_failing_events_stay_single_under_first_match_where_copies_are_dropped_before_it(
    seed: int,
) -> None:
    def dropping_copies(copies: Sequence[Copy]) -> Iterable[Verdict[Copy]]:
        return stage(first_match, failing)(list(dict.fromkeys(copies)))

    assert amplification(dropping_copies, seed) == [1.0] * ROUNDS


def test_without_dedup_the_same_loop_multiplies_its_events() -> None:
    def blind(copies: Sequence[Copy]) -> Iterable[Verdict[Copy]]:
        return [Handled(copy, Again(timedelta(seconds=1))) for copy in copies]

    assert amplification(blind, seed=1)[-1] > 1.15**ROUNDS


def test_dedup_by_id_alone_would_stop_the_loop_after_one_round() -> None:
    seen: set[str] = set()

    def once_per_id(copies: Sequence[Copy]) -> Iterable[Verdict[Copy]]:
        fresh = [copy for copy in copies if copy[0] not in seen]
        seen.update(copy[0] for copy in fresh)
        return stage(exact, unfinished)(fresh)

    assert amplification(once_per_id, seed=1)[1:] == [0.0] * (ROUNDS - 1)
