"""A memory in parts tells the duplicates that a whole one would tell."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.identity import Identity
from dedup.rules.policies.memory import BadMemory, Memory, Seen
from spark_jobs.errors import StateDamaged
from spark_jobs.policy.remembering import MemoryCodec
from spark_jobs.stateful import parts
from spark_jobs.stateful.parts import Head, Kept, Stored
from tests.unit.spark_jobs.stateful.stores import MOST, Parts

WITHIN = 1_000
NOW = 1_700_000_000_000


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Store a memory in parts as soon as it has some marks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "SMALL", 100)
        patch.setattr(parts, "_MOST", 4)
        yield


def _seen(name: int, at: int, partition: int = 0) -> Seen:
    return Seen(Identity("/s", f"{name}", 0), NOW + at, ("t", partition))


class _Workers:
    def __init__(self) -> None:
        self.value: bytes | None = None
        self.parts = Parts()
        self.kept = [Kept(), Kept()]
        self.written = 0

    def stored(self, worker: int) -> Stored:
        return Stored(MemoryCodec(WITHIN), self.parts, self.kept[worker], "q")

    def memory(self, worker: int) -> Memory:
        if self.value is None:
            return Memory(WITHIN)
        found: Memory = self.stored(worker).read(0, self.value)
        return found

    def step(self, records: list[Seen], now: int, worker: int = 0) -> list[bool]:
        memory, stored = self.memory(worker), self.stored(worker)
        found = list(memory.duplicates(records, now))
        writing = stored.writing(memory, self.value, MOST)
        stored.write(0, memory, writing)
        self.value = writing.value
        self.written = len(writing.value) + len(writing.part or b"")
        # The store has what the worker has.
        assert self.stored(1).whole(0, self.value) == memory.encode()
        return found


BATCHES = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 30), st.integers(0, 900), st.integers(0, 2)), max_size=6
        ),
        st.integers(0, 1),
        st.booleans(),
        st.integers(0, 700),
    ),
    max_size=15,
)


@given(st.integers(0, 20), BATCHES)
def test_any_workers_find_the_duplicates_that_one_memory_finds(
    first: int, batches: list[tuple[list[tuple[int, int, int]], int, bool, int]]
) -> None:
    whole, workers, clock = Memory(WITHIN), _Workers(), 0
    beginning = [(name, 0, name % 3) for name in range(first)]
    for records, worker, forgets, passed in [(beginning, 0, False, 0), *batches]:
        clock += passed
        found = [_seen(name, clock + at, partition) for name, at, partition in records]
        if forgets:
            workers.kept[worker] = Kept()
        now = NOW + clock + 500
        assert workers.step(found, now, worker) == list(whole.duplicates(found, now))


def test_a_batch_writes_the_marks_that_it_has_taken() -> None:
    workers = _Workers()
    workers.step([_seen(name, 0) for name in range(1_000)], NOW)
    assert workers.written > 20_000
    assert workers.step([_seen(name, 1) for name in range(998, 1_002)], NOW) == [
        True,
        True,
        False,
        False,
    ]
    assert workers.written < 300
    assert workers.value is not None
    head = Head.decode(workers.value)
    assert head is not None
    assert head.keys == 1_002
    assert len(workers.memory(1)) == 1_002


def test_a_memory_of_the_version_before_goes_on() -> None:
    memory, workers = Memory(WITHIN), _Workers()
    records = [_seen(name, 0) for name in range(20)]
    assert not any(memory.duplicates(records, NOW))
    workers.value = memory.encode()
    assert all(workers.step(records, NOW))
    assert Head.decode(workers.value) is not None


def test_a_version_without_parts_refuses_a_memory_in_parts() -> None:
    workers = _Workers()
    workers.step([_seen(name, 0) for name in range(20)], NOW)
    assert workers.value is not None
    with pytest.raises(BadMemory, match="the memory has format 3"):
        Memory.decode(WITHIN, workers.value)


def test_a_part_of_a_memory_that_is_missing_is_named() -> None:
    workers = _Workers()
    workers.step([_seen(name, 0) for name in range(20)], NOW)
    workers.parts.clear()
    with pytest.raises(StateDamaged, match="part 1 of 1 of the state of bucket 0 is missing"):
        workers.memory(1)


@pytest.mark.parametrize(("data", "reason"), [(b"\xc1", "not the changes"), (None, "format 2")])
def test_what_are_no_changes_of_a_memory_is_refused(data: bytes | None, reason: str) -> None:
    memory = Memory(WITHIN)
    other = data if data is not None else b"\x94\x02\x90\xc4\x00\xc4\x00"
    with pytest.raises(BadMemory, match=reason):
        memory.apply(other)
