"""Nothing begins while a partition's owner is uncertain; then everything does, in order."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from dedup.retries.aside import HoldInPlace
from dedup.rules.claim import Claim
from dedup.rules.lanes.lanes import Lanes, Stretch
from dedup.rules.policies.results import Result
from dedup.rules.record import Record
from dedup.serving.certainty import Certainty
from dedup.serving.handover import Handover
from dedup.settings.consumer import ConsumerSettings
from dedup.workers import workers_for
from tests.support.waiting import until


@dataclass
class Work:
    """A lane of one key, and the workers that serve it."""

    handover: Handover
    workers: Any
    stretch: Stretch[Record]
    records: Sequence[Record]
    completed: int = 0

    def are_completed(self) -> bool:
        self.workers.wake(self.handover.release()[0])
        self.workers.reclaim()
        self.completed += sum(report.records for report in self.handover.collect())
        return self.completed == len(self.records)


@contextmanager
def at_work(
    given: Mapping[str, Any],
    handle: Callable[[Any], Any],
    certainty: Certainty,
    records: Sequence[Record],
    *,
    claim: Claim | None = None,
    awaited: bool = False,
) -> Iterator[Work]:
    """Yield workers that have got records of one key; nothing else may fail."""
    settings = ConsumerSettings.model_validate(
        {"topics": ["t"], "group": "g", "kafka": {"bootstrap.servers": "x"}, **given}
    )

    async def handle_awaited(record: Any) -> Any:  # whatever `handle` takes
        return handle(record)

    handover = Handover(Lanes())
    failures: list[BaseException] = []
    with handover.lock:
        stretch = handover.lanes.begin("t", 0)
        stretch.claim = claim
        handover.lanes.open(stretch)
    with ThreadPoolExecutor(1) as threads:
        workers = workers_for(
            settings,
            handle_awaited if awaited else handle,
            handover,
            aside=HoldInPlace(),
            passes=None,
            threads=threads,
            failed=failures.append,
            certainty=certainty,
        )
        workers.wake(handover.offer([(stretch, {b"k": list(records)})]))
        yield Work(handover, workers, stretch, records)
        workers.close()
    assert failures == []


@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "loop"])
@pytest.mark.parametrize(
    "given",
    [{"policy": "every"}, {"policy": "exact"}, {"policy": "latest"}, {"handler_batch": 10}],
    ids=["plainly", "exact", "latest", "batch"],
)
def test_nothing_is_begun_while_it_is_not_certain(given: dict[str, Any], *, awaited: bool) -> None:
    doubts: list[None] = []
    certainty = Certainty(until=time.monotonic() - 1, doubted=lambda: doubts.append(None))
    seen: list[int] = []
    claims: list[Claim | None] = []

    def handle(record: Record | Sequence[Record]) -> Result | None:
        for each in [record] if isinstance(record, Record) else record:
            seen.append(each.offset)
            claims.append(each.claim)
        return None

    records = [Record("t", 0, n, 0, b"k", b"1", (("ce_id", b"e%d" % n),)) for n in range(3)]
    with at_work(given, handle, certainty, records, claim=Claim(7), awaited=awaited) as work:
        until(lambda: doubts, within=10, what="a doubt")
        assert seen == []
        certainty.until = math.inf
        until(work.are_completed, within=10, what="all of the key completed")
    assert seen == ([2] if given.get("policy") == "latest" else [0, 1, 2])
    assert set(claims) == {work.stretch.claim}


def test_what_was_begun_goes_on_and_what_comes_next_does_not() -> None:
    certainty = Certainty()
    seen: list[int] = []

    def handle(record: Record) -> None:
        seen.append(record.offset)
        # As if the process were paused for longer than a lane's turn, and than the certainty
        # lasts.
        certainty.until = time.monotonic() - 1
        ends = time.monotonic() + 0.1
        until(lambda: time.monotonic() > ends, within=10, what="the end of its turn")

    records = [Record("t", 0, n, 0, b"k", b"1", ()) for n in range(2)]
    with at_work({"policy": "every"}, handle, certainty, records) as work:
        until(lambda: work.handover.lanes.held == 1, within=10, what="the rest to be held")
    assert seen == [0]


@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "loop"])
def test_a_batch_that_fails_after_a_pause_is_begun_one_by_one_only_once_it_is_certain(
    *, awaited: bool
) -> None:
    doubts: list[None] = []
    certainty = Certainty(doubted=lambda: doubts.append(None))
    begun: list[tuple[int, bool]] = []

    def handle(records: Sequence[Record]) -> None:
        begun.append((len(records), time.monotonic() <= certainty.until))
        if len(records) > 1:
            certainty.until = time.monotonic() - 1  # as if the process had stood still
            msg = "lost meanwhile"
            raise ConnectionError(msg)

    given = {"policy": "every", "handler_batch": 10}
    records = [Record("t", 0, n, 0, b"k", b"1", ()) for n in range(3)]
    with at_work(given, handle, certainty, records, awaited=awaited) as work:
        until(lambda: doubts, within=10, what="a doubt")
        assert begun == [(3, True)]
        certainty.until = math.inf
        until(work.are_completed, within=10, what="all records completed")
    assert begun == [(3, True), (1, True), (1, True), (1, True)]
