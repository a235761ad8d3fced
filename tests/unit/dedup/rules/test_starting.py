"""Where a group begins, and where a partition goes on that its log no longer has."""

from collections.abc import Sequence

import pytest

from dedup.rules.lanes.offset_metadata import encode
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.starting import Onward, is_first_start, is_of_another, onward


@pytest.mark.parametrize(
    ("committed", "first"), [([], True), ([-1001, -1001], True), ([-1001, 0], False), ([7], False)]
)
def test_a_group_that_has_committed_anything_has_started_before(
    committed: Sequence[int], *, first: bool
) -> None:
    assert is_first_start(committed) is first


@pytest.mark.parametrize(
    ("position", "found"),
    [
        (3, Onward(10, expired=7)),
        (None, Onward(10)),
        (21, Onward(10, is_other=True)),
        (10, Onward(10)),
        (15, Onward(15)),
        (20, Onward(20)),
    ],
)
def test_a_partition_goes_on_where_nothing_that_is_left_is_passed_over(
    position: int | None, found: Onward
) -> None:
    assert onward(position, 10, 20) == found


def test_what_was_passed_over_is_committed_once_nothing_before_it_is_pending() -> None:
    idle, busy = Offsets(5), Offsets(5)
    busy.polled(5)
    for each in (idle, busy):
        each.pass_over(9)
        assert each.next == 9
    assert (idle.position, busy.position) == (9, 5)
    busy.complete([5])
    assert busy.position == 9
    assert busy.polled(9)


def test_the_next_offset_is_after_all_that_was_polled() -> None:
    fresh, known = Offsets(), Offsets(5)
    assert (fresh.next, known.next) == (None, 5)
    fresh.reached(9)
    assert fresh.next == 9
    known.polled(5)
    known.polled(8)
    assert known.next == 9
    known.reached(12)
    assert known.next == 12
    known.complete([5, 8])
    assert known.next == 12


def test_an_offset_is_of_another_topic_if_both_ids_are_known_and_differ() -> None:
    one, other = "a" * 22, "b" * 22
    said, unsaid = encode(5, [(7, 9)], topic_id=one)[0], encode(5, [(7, 9)])[0]
    assert is_of_another(said, other)
    assert not is_of_another(said, one)
    assert not is_of_another(said, None)
    assert not any(is_of_another(text, one) for text in (None, "", "a note", unsaid))
