"""The plan of disturbances."""

from collections import Counter
from itertools import islice

from proof.plan import ONE_BROKER, THREE_BROKERS, Kind, plan, wanted


def test_the_same_seed_disturbs_in_the_same_way() -> None:
    first, again, other = (
        list(islice(plan(seed, 6.0, shares=THREE_BROKERS, without=()), 200)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_short_run_has_seen_every_kind() -> None:
    assert {
        each.kind for each in islice(plan(1, 6.0, shares=THREE_BROKERS, without=()), len(Kind) + 1)
    } == set(Kind)


def test_most_are_kills_and_none_lasts_longer_than_asked_for() -> None:
    found = list(islice(plan(7, 2.0), 2_000))
    assert sum(each.kind is Kind.KILL for each in found) > len(found) / 2
    assert max(each.length for each in found) <= 2.0


def test_captures_are_switched_only_where_that_is_wanted() -> None:
    found = {each.kind for each in islice(plan(1, 6.0), 500)}
    assert found == set(ONE_BROKER) - {Kind.SWITCH}


def test_a_round_has_as_many_of_each_kind_as_its_share_says_in_an_order_of_its_own() -> None:
    size = sum(THREE_BROKERS.values())
    coming = plan(3, 6.0, shares=THREE_BROKERS, without=())
    list(islice(coming, len(THREE_BROKERS) + 2))
    first, second = ([each.kind for each in islice(coming, size)] for _ in range(2))
    assert Counter(first) == Counter(second) == Counter(THREE_BROKERS)
    assert first != second


def test_a_thousand_kills_among_three_brokers_come_with_what_is_to_be_shown() -> None:
    due = wanted(1_000, THREE_BROKERS, {Kind.SWITCH})
    deaths = due[Kind.ISOLATE] + due[Kind.CUT_OFF] + due[Kind.CRASH_KAFKA]
    assert deaths >= 100
    assert due[Kind.WOKEN] >= 50
    assert min(due[kind] for kind in (Kind.ROLL, Kind.PROMOTE, Kind.SNAPSHOT)) >= 20
