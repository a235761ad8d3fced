from dataclasses import replace

import pytest

from dovecote.demo.check import aggregated, deduplicated, published
from dovecote.demo.check.verdict import agrees, judge, numbers
from tests.unit.dovecote.demo.world import INPUT, RECORDS, RESULTS, ROWS, TOPICS

WELL = numbers(
    published.compare(ROWS, RECORDS),
    deduplicated.compare(INPUT, TOPICS),
    aggregated.compare(TOPICS.departures, TOPICS.arrivals, RESULTS),
    kills=2,
    seconds=1.25,
)


def test_the_numbers_are_those_that_the_comparisons_found() -> None:
    assert WELL.as_dict() == {
        "committed": 9,
        "published": 9,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
        "dedup_expected": 4,
        "dedup_got": 4,
        "dedup_wrong": 0,
        "retries": 1,
        "came_back": 1,
        "dead_letters": 1,
        "doubled": 0,
        "trips": 2,
        "days": 1,
        "aggregated_wrong": 0,
        "kills": 2,
        "seconds": 1.2,
    }


def test_a_run_without_faults_agrees() -> None:
    assert agrees(judge(WELL, kills=2))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("committed", 0),
        ("published", 10),
        ("lost", 1),
        ("duplicated", 1),
        ("out_of_order", 1),
        ("dedup_expected", 0),
        ("dedup_got", 2),
        ("dedup_wrong", 1),
        ("retries", 0),
        ("came_back", 0),
        ("dead_letters", 0),
        ("doubled", 1),
        ("trips", 0),
        ("days", 0),
        ("aggregated_wrong", 1),
        ("kills", 1),
    ],
)
def test_any_number_that_is_not_what_it_has_to_be_is_told(field: str, value: int) -> None:
    lines = judge(replace(WELL, **{field: value}), kills=2)
    assert not agrees(lines)
    assert field in {line.what for line in lines if not line.is_right}
