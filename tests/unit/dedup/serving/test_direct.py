"""Records that are begun without a task end as those of a task do."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from dedup.retries.aside import HoldInPlace
from dedup.rules.lanes.lanes import Lanes, Stretch
from dedup.rules.policies.results import Done, Result, Retry, failure
from dedup.rules.record import Record
from dedup.serving.direct import Slot
from dedup.serving.handover import Handover, Workers
from dedup.settings.consumer import ConsumerSettings
from dedup.workers import workers_for
from tests.support.waiting import until

CONCURRENCY = 4


@dataclass
class Handler:
    """Begins records, of which each ends a little later, and notes what it was given."""

    refuses: frozenset[int] = frozenset()
    """Offsets that are not begun."""
    fails_once: frozenset[int] = frozenset()
    """Offsets that are `Retry` the first time."""
    raises: frozenset[int] = frozenset()
    """Offsets whose rest raises the first time."""
    waits: bool = False
    """Whether nothing that was begun ends."""
    begun: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    at_work: set[bytes | None] = field(default_factory=set)
    most: int = 0

    def begin(self, record: Record, slot: Slot) -> bool:
        if record.offset in self.refuses:
            return False
        assert record.key not in self.at_work, "two records of a key at a time"
        self.at_work.add(record.key)
        self.most = max(self.most, len(self.at_work))
        self.begun.append(record.offset)
        if not self.waits:
            asyncio.get_running_loop().call_later(0.001, self._end, record, slot)
        return True

    def _end(self, record: Record, slot: Slot) -> None:
        self.at_work.discard(record.key)
        if record.offset in self.fails_once | self.raises:

            async def rest() -> Result:
                await asyncio.sleep(0)
                if record.offset in self.raises:
                    msg = "odd"
                    raise ValueError(msg)
                return Retry("once")

            slot.unfinished(rest)
            return
        self.ended.append(record.offset)
        slot.done()

    def raised(self, error: Exception) -> Result:
        return failure(error)

    async def take(self, record: Record) -> Result:
        assert record.key not in self.at_work, "two records of a key at a time"
        self.taken.append(record.offset)
        await asyncio.sleep(0)
        self.ended.append(record.offset)
        return Done()


class Serving:
    """Workers that serve one partition with a handler."""

    def __init__(self, workers: Workers, handover: Handover, stretch: Stretch[Record]) -> None:
        self.workers, self.handover, self.stretch = workers, handover, stretch
        self.completed: list[int] = []
        self.failures: list[BaseException] = []

    def offer(self, records: Sequence[Record]) -> None:
        batch: dict[bytes | None, list[Record]] = {}
        for each in records:
            batch.setdefault(each.key, []).append(each)
        self.workers.wake(self.handover.offer([(self.stretch, batch)]))

    def collects(self, count: int) -> bool:
        self.workers.wake(self.handover.release()[0])
        self.workers.reclaim()
        for report in self.handover.collect():
            self.completed += [offset for _, offset, _ in report.handled]
            self.completed += [each.record.offset for each in report.completed]
        return len(self.completed) >= count


@contextmanager
def serving(handler: Handler) -> Iterator[Serving]:
    settings = ConsumerSettings.model_validate(
        {
            "topics": ["t"],
            "group": "g",
            "kafka": {"bootstrap.servers": "x"},
            "policy": "every",
            "concurrency": CONCURRENCY,
        }
    )
    handover: Handover = Handover(Lanes())
    with handover.lock:
        stretch = handover.lanes.begin("t", 0)
        handover.lanes.open(stretch)
    failures: list[BaseException] = []
    with ThreadPoolExecutor(1) as threads:
        workers = workers_for(
            settings,
            handler.take,
            handover,
            aside=HoldInPlace(timedelta(milliseconds=10)),
            passes=None,
            threads=threads,
            failed=failures.append,
            begins=handler,
        )
        found = Serving(workers, handover, stretch)
        found.failures = failures
        try:
            yield found
        finally:
            workers.close()


def records(count: int, keys: int) -> list[Record]:
    return [
        Record("t", 0, n, 0, b"k%d" % (n % keys), b"1", (("ce_id", b"e%d" % n),))
        for n in range(count)
    ]


def of_key(offsets: Sequence[int], key: int, keys: int) -> list[int]:
    return [each for each in offsets if each % keys == key]


def test_each_record_is_begun_once_and_those_of_a_key_in_order() -> None:
    handler = Handler()
    with serving(handler) as served:
        served.offer(records(100, keys=7))
        until(lambda: served.collects(100), within=20, what="all records completed")
    assert sorted(handler.begun) == sorted(served.completed) == list(range(100))
    assert handler.taken == []
    assert 1 < handler.most <= CONCURRENCY
    for key in range(7):
        assert of_key(handler.begun, key, 7) == list(range(key, 100, 7))


def test_the_handler_takes_what_is_not_begun_in_its_turn() -> None:
    handler = Handler(refuses=frozenset(range(0, 60, 4)))
    with serving(handler) as served:
        served.offer(records(60, keys=5))
        until(lambda: served.collects(60), within=20, what="all records completed")
    assert sorted(served.completed) == list(range(60))
    assert set(handler.taken) >= handler.refuses
    for key in range(5):
        assert of_key(handler.ended, key, 5) == list(range(key, 60, 5))


@pytest.mark.parametrize("how", ["fails_once", "raises"])
def test_a_record_that_fails_holds_its_key_and_comes_again(how: str) -> None:
    bad = frozenset({3, 12})
    handler = Handler(fails_once=bad) if how == "fails_once" else Handler(raises=bad)
    with serving(handler) as served:
        served.offer(records(40, keys=4))
        until(lambda: served.collects(40), within=20, what="all records completed")
    assert sorted(served.completed) == list(range(40))
    assert set(handler.taken) >= bad
    for key in range(4):
        assert of_key(handler.ended, key, 4) == list(range(key, 40, 4))
    assert served.failures == []


def test_nothing_is_begun_of_a_partition_that_is_given_up() -> None:
    handler = Handler()
    with serving(handler) as served:
        served.offer(records(2_000, keys=2))
        until(lambda: served.collects(10), within=20, what="some records completed")
        assert served.handover.drain([served.stretch], 10)
        began = len(handler.begun)
        assert served.stretch.at_work == 0
        served.collects(0)
    assert len(handler.begun) == began < 2_000
    assert sorted(served.completed) == sorted(handler.ended) == sorted(handler.begun)
    assert handler.taken == []


def test_the_end_leaves_records_that_were_begun_for_the_next_owner() -> None:
    handler = Handler(waits=True)
    with serving(handler) as served:
        served.offer(records(8, keys=8))
        until(lambda: len(handler.begun) == CONCURRENCY, within=10, what="records begun")
        assert served.workers.oldest > 0.0
        assert not served.handover.drain([served.stretch], 0.05)
    served.collects(0)
    assert served.completed == []
    assert served.failures == []


def test_what_begin_raises_ends_the_consumer() -> None:
    odd = RuntimeError("odd")

    class Broken(Handler):
        def begin(self, record: Record, slot: Slot) -> bool:  # noqa: ARG002  # as `Handler`
            raise odd

    with serving(Broken()) as served:
        served.offer(records(1, keys=1))
        until(lambda: bool(served.failures), within=10, what="a failure")
    assert served.failures == [odd]
