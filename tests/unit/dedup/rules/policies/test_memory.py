"""The memory of events over several batches."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies.memory import BadMemory, Memory, Seen, Stream
from dedup.rules.policies.policies import Identity

WITHIN = 100


def _seen(id_: str, at: int, *, round_: int = 0, partition: int = 0) -> Seen:
    return Seen((id_, round_), at, ("t", partition))


def _copies(*records: Seen, now: int = 0) -> list[bool]:
    return list(Memory(WITHIN).duplicates(records, now))


def test_an_identity_is_a_copy_of_one_that_is_no_further_away_than_is_remembered() -> None:
    first = _seen("a", 1_000)

    assert _copies(first, _seen("a", 1_100)) == [False, True]
    assert _copies(first, _seen("a", 1_101)) == [False, False]
    assert _copies(first, _seen("a", 900)) == [False, True]
    assert _copies(first, _seen("b", 1_000)) == [False, False]


def test_a_later_round_is_no_copy() -> None:
    assert _copies(_seen("a", 0), _seen("a", 0, round_=1), _seen("a", 0, round_=1)) == [
        False,
        False,
        True,
    ]


def test_a_copy_in_another_partition_is_one_all_the_same() -> None:
    assert _copies(_seen("a", 0), _seen("a", 50, partition=1)) == [False, True]


def test_what_has_no_identity_is_a_copy_of_nothing() -> None:
    nobody = Seen(None, 0, ("t", 0))

    memory = Memory(WITHIN)

    assert list(memory.duplicates([nobody, nobody])) == [False, False]
    assert len(memory) == 0


def test_what_passes_is_what_later_copies_are_measured_by() -> None:
    assert _copies(_seen("a", 0), _seen("a", 150), _seen("a", 240)) == [False, False, True]


def test_what_comes_too_late_to_be_known_passes_rather_than_being_lost() -> None:
    assert _copies(_seen("a", 0), _seen("b", 1_000), _seen("a", 10)) == [False, False, False]


def test_a_timestamp_of_the_future_makes_nothing_forgotten_before_its_time() -> None:
    records = [_seen("a", 1_000), _seen("b", 10**9), _seen("a", 1_050)]

    assert _copies(*records, now=1_040) == [False, False, True]


def test_what_is_forgotten_takes_no_room() -> None:
    memory = Memory(WITHIN)

    for at in range(0, 100_000, 10):
        assert list(memory.duplicates([_seen(f"e{at}", at)])) == [False]

    assert len(memory) < 4 * WITHIN // 10


def test_bytes_that_are_no_memory_are_refused() -> None:
    for data in (b"", b"\xc1", Memory(WITHIN).encode().replace(b"\x94\x01", b"\x94\x07")):
        with pytest.raises(BadMemory):
            Memory.decode(WITHIN, data)


records = st.lists(
    st.builds(
        lambda id_, round_, at, partition: _seen(
            f"e{id_}", at, round_=round_, partition=partition
        ),
        st.integers(0, 12),
        st.integers(0, 1),
        st.integers(0, 1_000),
        st.integers(0, 2),
    ),
    max_size=60,
)


@given(records, st.integers(0, 2**32))
def test_neither_batches_nor_restarts_change_what_is_a_copy(found: list[Seen], seed: int) -> None:
    dice = random.Random(seed)
    whole = _copies(*found)

    memory, told, rest = Memory(WITHIN), list[bool](), found
    while rest:
        size = dice.randint(1, len(rest))
        told += memory.duplicates(rest[:size])
        rest = rest[size:]
        if dice.random() < 0.5:
            memory = Memory.decode(WITHIN, memory.encode())

    assert told == whole


@given(records)
def test_a_copy_is_near_the_last_one_that_was_taken_while_that_is_known(found: list[Seen]) -> None:
    taken: dict[Identity | None, Seen] = {}
    newest: dict[Stream, int] = {}
    expected = []
    for record in found:
        newest[record.stream] = max(newest.get(record.stream, 0), record.timestamp)
        before = taken.get(record.identity)
        is_duplicate = (
            before is not None
            and abs(record.timestamp - before.timestamp) <= WITHIN
            and newest[before.stream] <= before.timestamp + 2 * WITHIN
        )
        expected.append(is_duplicate)
        if not is_duplicate and newest[record.stream] <= record.timestamp + 2 * WITHIN:
            taken[record.identity] = record

    assert _copies(*found) == expected


@pytest.mark.parametrize("odd", [-1, 2**63 - 1, 1_760_000_000_000_000_000, 253_402_300_799_999])
def test_copies_with_any_timestamp_are_told_and_forgotten(odd: int) -> None:
    memory = Memory(WITHIN)
    now = 1_760_000_000_000
    assert list(memory.duplicates([_seen("a", odd), _seen("a", odd)], now)) == [False, True]
    memory = Memory.decode(WITHIN, memory.encode())
    assert list(memory.duplicates([_seen("a", odd)], now + 50)) == [True]

    later = now + 10 * WITHIN
    assert list(memory.duplicates([_seen("b", later)], later)) == [False]
    assert len(memory) == 1


def test_a_clock_that_was_wrong_makes_nothing_forgotten_or_kept_for_longer() -> None:
    now = 1_760_000_000_000
    memory = Memory(WITHIN)
    list(
        memory.duplicates([_seen("a", now), _seen("x", now + 3 * 3_600_000)], now + 3 * 3_600_000)
    )

    assert list(memory.duplicates([_seen("b", now)], now)) == [False]
    assert list(memory.duplicates([_seen("b", now)], now + 1)) == [True]


def test_a_first_timestamp_of_the_future_makes_nothing_forgotten() -> None:
    now = 1_760_000_000_000
    memory = Memory(WITHIN)
    assert list(memory.duplicates([_seen("x", now + 3_000_000), _seen("a", now)], now)) == [
        False,
        False,
    ]
    assert list(memory.duplicates([_seen("a", now)], now + 1)) == [True]
