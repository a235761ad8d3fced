"""The proof of Spark jobs counts what is lost, doubled and wrong."""

import json
from collections import Counter

import pytest

from proof.spark.work import Fact, Name, verdict, work


def test_a_result_that_is_missing_or_comes_twice_or_is_another_is_counted() -> None:
    wanted: Counter[Fact] = Counter({("a", 1): 1, ("b", 2): 1, ("c", 3): 1})
    seen: Counter[Fact] = Counter({("a", 1): 1, ("b", 2): 3, ("c", 4): 1})

    found = verdict(wanted, seen)

    assert (found.wanted, found.lost, found.doubled, found.wrong) == (3, 1, 2, 1)
    assert not found.is_well
    assert verdict(wanted, wanted).is_well


def test_nothing_is_no_proof() -> None:
    assert not verdict(Counter(), Counter()).is_well


@pytest.mark.parametrize("name", ["dedup", "remember"])
def test_events_that_pass_are_wanted_once_however_often_they_come(name: Name) -> None:
    job = work(name)
    given = [*job.given(20), *job.given(10)]

    wanted = job.expected()

    assert wanted.total() == 27
    assert set(wanted.values()) == {1}
    assert len({each.id for each in given}) == 30
    assert (len(given) > 30) is (name == "remember")
    assert {job.result(each.id, each.value) for each in given} >= wanted.keys()


def test_a_session_is_three_clicks_and_no_two_of_a_key_meet() -> None:
    job = work("sessions")
    given = [json.loads(each.value) | {"key": each.key} for each in job.given(3_000)]

    wanted = job.expected()

    assert wanted.total() == 1_000
    assert sum(int(str(total)) for *_, total in wanted) == sum(each["n"] for each in given)
    by_key: dict[str, list[int]] = {}
    for key, start, end, _ in sorted(wanted, key=str):
        by_key.setdefault(str(key), []).extend([int(str(start)), int(str(end))])
    for times in by_key.values():
        ordered = sorted(times)
        gaps = [
            after - before for before, after in zip(ordered[1::2], ordered[2::2], strict=False)
        ]
        assert all(gap > 5_000 for gap in gaps)
