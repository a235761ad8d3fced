"""The events to park are a function of the batch and of what is held."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import pytest

from relay.rules.parking import BEHIND, EventMark, Policy, Reason, sort
from relay.rules.row import POSITION, Identity, Key, Row, identity
from tests.support.rows import row

LARGE = Reason("MSG_SIZE_TOO_LARGE", "too large")
MISSING = Reason("UNKNOWN_TOPIC_OR_PART", "no such topic")


def parted(
    rows: list[Row],
    *,
    closed: Mapping[str, Reason] = {},
    held: AbstractSet[Key] = frozenset(),
    marks: Mapping[Identity, EventMark] = {},
    policy: Policy = "hold",
) -> tuple[list[int], list[tuple[int, str, bool]]]:
    publish, park = sort(rows, closed=closed, held=held, marks=marks, policy=policy)
    return (
        [each[POSITION] for each in publish],
        [(each.row[POSITION], each.reason.code, each.holds) for each in park],
    )


def marked(*rows: Row) -> dict[Identity, EventMark]:
    return {identity(each): EventMark(LARGE) for each in rows}


def test_a_batch_without_trouble_is_not_even_copied() -> None:
    rows = [row(1), row(2)]
    assert sort(rows, closed={}, held=set(), marks={}, policy="hold").publish is rows


def test_later_events_of_a_key_are_parked_behind_it_and_earlier_ones_are_not() -> None:
    rows = [row(1), row(2), row(3, key=b"other"), row(4), row(5, topic="payments")]
    publish, park = parted(rows, marks=marked(rows[1]))
    assert publish == [1, 3, 5]
    assert park == [(2, LARGE.code, True), (4, BEHIND.code, True)]


def test_by_skip_an_event_is_parked_alone() -> None:
    rows = [row(1), row(2), row(3)]
    assert parted(rows, marks=marked(rows[1]), policy="skip") == ([1, 3], [(2, LARGE.code, False)])


@pytest.mark.parametrize("policy", ["hold", "skip"])
def test_what_is_held_from_before_stays_held_whatever_the_policy(policy: Policy) -> None:
    held: set[Key] = {("orders", b"k")}
    publish, park = parted([row(1), row(2, key=b"other")], held=held, policy=policy)
    assert (publish, park) == ([2], [(1, BEHIND.code, True)])


def test_an_event_without_a_key_holds_nothing_and_is_held_by_nothing() -> None:
    rows = [row(1, key=None), row(2, key=None)]
    assert parted(rows, marks=marked(rows[0])) == ([2], [(1, LARGE.code, False)])


def test_all_events_of_a_closed_topic_are_parked() -> None:
    rows = [row(1), row(2, key=b"other"), row(3, key=None), row(4, topic="payments")]
    publish, park = parted(rows, closed={"orders": MISSING})
    assert publish == [4]
    assert [code for _, code, _ in park] == [MISSING.code] * 3


def test_an_event_that_was_parked_in_vain_is_parked_anew_in_the_place_of_its_number() -> None:
    again = row(2)
    marks = {identity(again): EventMark(LARGE, 17)}
    _, (parked,) = sort([row(1), again], closed={}, held=set(), marks=marks, policy="hold")
    assert (parked.row, parked.replaces) == (again, 17)
