"""A leaf is emptied when no writer is sent there, and writers go on only to an empty one."""

from hypothesis import given
from hypothesis import strategies as st

from relay.rules.server.leaves import PARENT, Leaf, due, successor

LARGE, SMALL = 8_000_000, 8192


def ring(written: int | None, *sizes: int, parent: int = 0) -> list[Leaf]:
    return [
        Leaf(number, size, size, size // 100, written=number == written)
        for number, size in enumerate([parent, *sizes], PARENT)
    ]


def numbers(leaves: list[Leaf]) -> list[int]:
    return [leaf.number for leaf in leaves]


def test_what_holds_rows_and_takes_no_more_is_due() -> None:
    assert numbers(due(ring(1, SMALL, LARGE, 0, LARGE))) == [0, 3]
    assert due(ring(0, LARGE, 0, 0, 0)) == []


def test_rows_from_before_there_were_leaves_are_due() -> None:
    assert numbers(due(ring(0, 0, 0, 0, 0, parent=LARGE))) == [PARENT]


def test_writers_go_on_to_the_next_empty_leaf_in_turn() -> None:
    assert successor(ring(0, LARGE, 0, 0, 0)) == 1
    assert successor(ring(3, 0, 0, 0, LARGE)) == 0
    assert successor(ring(1, 0, LARGE, SMALL, 0)) == 3


def test_a_leaf_that_is_held_is_left_out_and_the_others_take_turns() -> None:
    assert successor(ring(3, 0, LARGE, 0, LARGE)) == 0
    assert successor(ring(0, LARGE, LARGE, 0, 0)) == 2


def test_without_an_empty_leaf_writers_stay_where_they_are() -> None:
    assert successor(ring(2, LARGE, LARGE, LARGE, SMALL)) is None


def test_a_small_leaf_is_not_worth_a_rotation() -> None:
    assert successor(ring(2, 0, 0, SMALL, 0)) is None


def test_writers_that_are_nowhere_in_the_ring_are_sent_into_it() -> None:
    assert successor(ring(None, LARGE, 0, 0, 0, parent=LARGE)) == 1


@given(
    st.lists(st.sampled_from([0, SMALL, LARGE]), min_size=2, max_size=8),
    st.integers(-1, 7),
    st.sampled_from([0, LARGE]),
)
def test_nobody_is_sent_where_rows_are_and_nothing_is_emptied_where_somebody_is_sent(
    sizes: list[int], written: int, parent: int
) -> None:
    leaves = ring(written if 0 <= written < len(sizes) else None, *sizes, parent=parent)
    following = successor(leaves)
    held = {leaf.number for leaf in leaves if leaf.heap_bytes}
    assert following not in held
    assert following != PARENT
    assert not {leaf.number for leaf in due(leaves) if leaf.written}
