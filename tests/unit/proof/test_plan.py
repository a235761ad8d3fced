"""The plan of disturbances."""

from itertools import islice

from proof.plan import Kind, plan


def test_the_same_seed_disturbs_in_the_same_way() -> None:
    first, again, other = (list(islice(plan(seed, 6.0, switches=True), 200)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_short_run_has_seen_every_kind() -> None:
    assert {each.kind for each in islice(plan(1, 6.0, switches=True), len(Kind) + 1)} == set(Kind)


def test_most_are_kills_and_none_lasts_longer_than_asked_for() -> None:
    found = list(islice(plan(7, 2.0, switches=True), 2_000))
    assert sum(each.kind is Kind.KILL for each in found) > len(found) / 2
    assert max(each.length for each in found) <= 2.0


def test_captures_are_switched_only_where_that_is_wanted() -> None:
    found = {each.kind for each in islice(plan(1, 6.0, switches=False), 500)}
    assert found == set(Kind) - {Kind.SWITCH}
