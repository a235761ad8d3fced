"""The selection of dead letters, and the contents of their records."""

from collections.abc import Sequence

from dedup.retries import copies
from dedup.retries.letter import (
    Which,
    any_standing,
    first_standing,
    resolution,
    resolved,
    standing,
)
from dedup.rules.identity import Identity
from outbox.envelope import ERROR, GROUP, ID, ORIGIN, RESOLVES, WITHOUT_VALUE, Pair, Record


def letter(offset: int, partition: int = 0, headers: Sequence[Pair] = ()) -> Record:
    pairs: list[Pair] = [(ID, f"e{offset}".encode()), *headers]
    return Record("dead", partition, offset, 0, b"k", b"v", pairs)


def test_a_resolution_hides_the_letter_of_its_partition_alone() -> None:
    letters = [letter(1), letter(1, partition=1), letter(2)]
    (gone,) = standing([letters[0]], Which())
    said = Record("dead", 0, 3, 0, b"k", None, resolution(gone, "dropped"))

    assert [each.at for each in standing([*letters, said], Which())] == [(0, 2), (1, 1)]


def test_whatever_a_topic_holds_few_letters_are_held_in_memory() -> None:
    large = letter(0)._replace(key=b"k" * 1_000_000)
    letters = [large, *(letter(offset) for offset in range(1, 10))]
    first, others = first_standing(letters, Which(), 3)
    assert [each.at for each in first] == [(0, 0), (0, 1), (0, 2)]
    assert others == {(0, offset) for offset in range(3, 10)}
    assert len(first[0].key or b"") == 2_000
    gone = [Record("dead", 0, 9 + n, 0, b"k", None, [(RESOLVES, b"%d x" % n)]) for n in (1, 8)]
    first, others = first_standing([*letters, *gone], Which(), 3)
    assert ([each.at[1] for each in first], len(others)) == ([0, 2], 6)


def test_nonsense_where_a_resolution_is_hides_no_letter() -> None:
    for value in (b"", b"all requeued", b"9" * 5_000, None):
        nonsense = Record("dead", 0, 3, 0, b"k", None, [(RESOLVES, value)])
        assert resolved(nonsense) == (0, 3)
        assert len(standing([letter(1), nonsense], Which())) == 1


def test_what_carries_none_of_our_headers_is_a_letter_too() -> None:
    (foreign,) = standing([Record("dead", 4, 7, 0, None, None, [("ce_id", b"\xff")])], Which())

    assert (foreign.id, foreign.origin, foreign.reason) == ("dead/4/7", "dead/4/7", "")


def test_a_letter_says_where_it_comes_from() -> None:
    (found,) = standing([letter(1, headers=[(ORIGIN, b"a/b/3/44"), (ERROR, b"late")])], Which())

    assert (found.origin_topic, found.reason) == ("a/b", "late")


def test_letters_are_those_of_groups_or_name_none() -> None:
    letters = [letter(1, headers=[(GROUP, b"a")]), letter(2, headers=[(GROUP, b"b")]), letter(3)]

    def of(*groups: str | None) -> list[str | None]:
        return [each.group for each in standing(letters, Which(groups=groups))]

    assert of() == ["a", "b", None]
    assert of("a", None) == ["a", None]
    assert of("b") == ["b"]
    assert not Which(groups=("a",)).is_narrowed


def test_what_a_foreign_record_says_of_letters_is_not_said_by_its_letter() -> None:
    headers: list[Pair] = [(RESOLVES, b"1 dropped"), (WITHOUT_VALUE, b"1"), ("theirs", b"x")]
    foreign = Record("orders", 0, 3, 0, b"k", b"v", headers)

    whole = copies.dead(foreign, Identity("/s", "orders/0/3"), now=1, error="no")
    emptied = copies.emptied(foreign, now=1, error="too large")

    buried = [Record("dead", 0, n, 0, *copy) for n, copy in ((1, whole), (2, emptied))]
    assert [each.without_value for each in standing(buried, Which())] == [False, True]
    assert ("theirs", b"x") in whole.headers


def test_letters_stand_though_the_first_one_is_resolved() -> None:
    one, other = letter(0), letter(1)
    (found, _) = standing([one, other], Which())
    gone = letter(2, headers=resolution(found, "dropped"))
    assert any_standing([one, other, gone], Which())
    assert not any_standing([one, gone], Which())
