"""A note steps over the batch that cannot be read, and over nothing else."""

from collections.abc import Callable, Sequence

import pytest

from dedup.rules.unread import (
    MOST_TRIED,
    Place,
    SkipNote,
    Unread,
    covering,
    end_of_unread,
    place_of,
)

PLACE = Place("orders", 0, 42)


def note(first: int = 40, until: int = 45, at: str = "2026-02-01T09:30:00+00:00") -> SkipNote:
    return SkipNote(
        group="g",
        topic="orders",
        partition=0,
        first=first,
        until=until,
        topic_id="one",
        error="broken",
        by="ann",
        at=at,
        why="agreed with the shop",
    )


def test_a_place_is_read_as_it_is_written() -> None:
    assert place_of("orders/0/42") == PLACE
    assert str(PLACE) == "orders/0/42"


@pytest.mark.parametrize("text", ["", "orders", "orders/0", "orders/0/x", "a b/0/1", "o/0/-1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="orders/0/42"):
        place_of(text)


def test_a_note_comes_back_as_it_was_written() -> None:
    key, value = note().encode()
    assert SkipNote.decode(value) == note()
    assert key == note(until=99).encode()[0]


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{", b"[]", b"5", b'{"group": "g"}', note(5, 5).encode()[1]]
    + [note().encode()[1].replace(b"45", text) for text in (b'"45"', b"true", b"4.5", b"null")]
    + [note().encode()[1].replace(b'"one"', text) for text in (b"[]", b"{}", b"5", b"true")]
    + [b"[" * 100_000, b"9" * 100_000, b'"\\ud800"', b"\xff"],
)
def test_what_is_no_note_steps_over_nothing(value: bytes | None) -> None:
    assert SkipNote.decode(value) is None


def test_a_note_covers_its_offsets_of_its_topic_and_no_others() -> None:
    assert [
        each for each in range(38, 48) if note().covers(PLACE._replace(offset=each), "one")
    ] == [*range(40, 45)]
    assert note().covers(PLACE, None)
    assert not note().covers(PLACE, "made anew")
    assert not note().covers(PLACE._replace(partition=1), "one")
    assert not note().covers(PLACE._replace(topic="other"), "one")


def test_of_two_notes_the_newer_counts() -> None:
    older, newer = note(until=43), note(until=44, at="2026-02-02T00:00:00+00:00")
    assert covering([newer, older], PLACE) == newer
    assert covering([older], PLACE._replace(offset=43)) is None


Batch = tuple[int, int, bool]
"""Its first offset, the one after its last, and whether it can be read."""


def log(batches: Sequence[Batch], *, names_batches: bool) -> Callable[[int], Unread | None]:
    def read(offset: int) -> Unread | None:
        for first, until, is_sound in batches:
            if first <= offset < until:
                return None if is_sound else Unread(first if names_batches else offset, "broken")
        return None

    return read


@pytest.mark.parametrize("at", [100, 101, 150, 199])
@pytest.mark.parametrize("until", [200, 201, 228, 300])
@pytest.mark.parametrize("then", [0, 1, 3, 28, 500])
def test_the_end_of_a_batch_is_found_also_before_another_broken_one(
    at: int, until: int, then: int
) -> None:
    batches = [
        (0, 100, True),
        (100, until, False),
        (until, until + then, True),
        (until + then, until + 10_000, False),
    ]
    asked: list[int] = []

    def read(offset: int) -> Unread | None:
        asked.append(offset)
        return log(batches, names_batches=True)(offset)

    assert end_of_unread(read, at, until + 10_000) == until
    assert len(asked) < 40


def test_a_batch_of_millions_takes_few_steps() -> None:
    asked: list[int] = []

    def read(offset: int) -> Unread | None:
        asked.append(offset)
        return Unread(7, "broken") if 7 <= offset < 10_000_007 else None

    assert end_of_unread(read, 7, 20_000_000) == 10_000_007
    assert len(asked) < 60


def test_a_batch_within_which_the_client_says_nothing_is_one_as_well() -> None:
    def read(offset: int) -> Unread | None:
        if 10 <= offset < 15:
            return Unread(10 if offset == 10 else -1, "nothing comes")
        return None

    assert end_of_unread(read, 10, 30) == 15
    assert end_of_unread(read, 12, 30) == 15


@pytest.mark.parametrize(("until", "found"), [(11, 11), (40, 40), (209, 209), (300, None)])
def test_offsets_that_fail_one_by_one_are_tried_one_by_one(until: int, found: int | None) -> None:
    read = log([(0, 10, True), (10, until, False)], names_batches=False)
    assert end_of_unread(read, 10, 1_000) == found
    assert MOST_TRIED == 200


def test_the_end_of_the_log_ends_the_search() -> None:
    for names_batches in (True, False):
        read = log([(10, 20, False)], names_batches=names_batches)
        assert end_of_unread(read, 10, 20) == 20
        assert end_of_unread(read, 19, 20) == 20
    assert end_of_unread(lambda _: None, 10, 20) == 10
