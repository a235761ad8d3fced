"""
Results of handlers that finish while their partition is given up count, and nothing new begins.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from dedup.retries.aside import Held, HoldInPlace, Outage, Placed, Unfinished
from dedup.rules.lanes.lanes import Lanes, Stretch
from dedup.rules.policies.results import Dead, Result, Retry, Skip
from dedup.rules.record import Record
from dedup.serving.handover import Handover, Workers
from dedup.settings.consumer import ConsumerSettings
from dedup.workers import workers_for
from tests.support.waiting import patient, until

BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["threads", "loop"])


class Letters(HoldInPlace):
    """Takes dead letters, or is away."""

    def __init__(self, *, away: bool = False) -> None:
        super().__init__(base=timedelta(hours=1))
        self.away = away
        self.dead: list[int] = []

    def place(self, record: Record, result: Unfinished, attempt: int) -> Placed | Held:
        if self.away:
            msg = "away"
            raise Outage(msg)
        if not isinstance(result, Dead):
            return super().place(record, result, attempt)
        self.dead.append(record.offset)
        return Placed("dead_letter")


@dataclass
class Draining:
    """A partition whose records are in a handler that waits until it is drained."""

    workers: Workers
    handover: Handover
    threads: ThreadPoolExecutor
    began: list[int] = field(default_factory=list)
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def drained(self, batch: dict[bytes | None, list[Record]]) -> dict[int, str]:
        """Handle `batch`, give the partition up meanwhile; return what is completed, and how."""
        stretch = self.at_work(batch)
        done = self.threads.submit(self.handover.drain, [stretch], 10)
        until(lambda: not stretch.live, within=10, what="the end of the stretch")
        self.go_on.set()
        assert done.result(patient(10))
        told: dict[int, str] = {}
        for report in self.handover.collect():
            told |= {each.record.offset: each.outcome for each in report.completed}
            told |= {offset: "handled" for _, offset, _ in report.handled}
        assert self.handover.lanes.held == 0
        return told

    def at_work(self, batch: dict[bytes | None, list[Record]]) -> Stretch[Record]:
        """Let `batch` be handled until the handler waits."""
        with self.handover.lock:
            stretch = self.handover.lanes.begin("t", 0)
            self.handover.lanes.open(stretch)
        self.workers.wake(self.handover.offer([(stretch, batch)]))
        assert self.begun.wait(patient(10))
        self.workers.reclaim(everything=True)
        return stretch


@contextmanager
def draining(
    answer: Callable[[int], Result | None],
    *,
    awaited: bool = False,
    aside: HoldInPlace | None = None,
    policy: str = "exact",
    handler_batch: int = 1,
) -> Iterator[Draining]:
    settings = ConsumerSettings.model_validate(
        {
            "topics": ["t"],
            "group": "g",
            "kafka": {"bootstrap.servers": "x"},
            "policy": policy,
            "handler_batch": handler_batch,
            "concurrency": 1,
        }
    )
    failures: list[BaseException] = []
    run: Draining

    def answers(given: Any) -> Any:
        return [answer(e.offset) for e in given] if handler_batch > 1 else answer(given.offset)

    def note(given: Any) -> None:
        run.began.extend(e.offset for e in (given if handler_batch > 1 else [given]))
        run.begun.set()

    def handler(given: Any) -> Any:
        note(given)
        assert run.go_on.wait(patient(10))
        return answers(given)

    async def handler_awaited(given: Any) -> Any:
        note(given)
        assert await asyncio.to_thread(run.go_on.wait, 10)
        return answers(given)

    handover = Handover(Lanes())
    with ThreadPoolExecutor(2) as threads:
        workers = workers_for(
            settings,
            handler_awaited if awaited else handler,
            handover,
            aside=aside or HoldInPlace(timedelta(hours=1)),
            passes=None,
            threads=threads,
            failed=failures.append,
        )
        run = Draining(workers, handover, threads)
        try:
            yield run
        finally:
            run.go_on.set()
            workers.close()
    assert failures == []


def record(key: str, offset: int) -> Record:
    return Record("t", 0, offset, 0, key.encode(), b"1", (("ce_id", b"e%d" % offset),))


def keys(number: int) -> dict[bytes | None, list[Record]]:
    return {b"k%d" % n: [record(f"k{n}", n)] for n in range(number)}


def one_key(number: int) -> dict[bytes | None, list[Record]]:
    return {b"k": [record("k", n) for n in range(number)]}


@BOTH
def test_a_batch_that_is_handled_meanwhile_is_completed(*, awaited: bool) -> None:
    with draining(lambda _: None, awaited=awaited, handler_batch=10) as run:
        assert run.drained(keys(8)) == dict.fromkeys(range(8), "handled")


@BOTH
def test_of_a_key_the_newest_that_is_handled_meanwhile_is_completed_with_the_older(
    *, awaited: bool
) -> None:
    with draining(lambda _: None, awaited=awaited, policy="latest") as run:
        assert run.drained(one_key(4)) == {3: "handled", **dict.fromkeys(range(3), "skipped")}
        assert run.began == [3]


@BOTH
def test_what_is_skipped_or_dead_meanwhile_is_completed_and_the_next_is_not_begun(
    *, awaited: bool
) -> None:
    for result, outcome in ((Skip("no"), "skipped"), (Dead("no"), "dead_letter")):
        with draining([result].__getitem__, awaited=awaited, aside=Letters()) as run:
            assert run.drained(one_key(3)) == {0: outcome}
            assert run.began == [0]


@BOTH
def test_in_a_batch_the_dead_are_placed_and_those_to_be_tried_again_come_again(
    *, awaited: bool
) -> None:
    results: list[Result | None] = [None, Dead("no"), Retry("later"), Skip("no")]
    letters = Letters()
    with draining(results.__getitem__, awaited=awaited, aside=letters, handler_batch=4) as run:
        told = run.drained(keys(4))
    assert told == {0: "handled", 1: "dead_letter", 3: "skipped"}
    assert letters.dead == [1]


@BOTH
def test_what_cannot_be_placed_meanwhile_comes_again_and_holds_up_nothing(
    *, awaited: bool
) -> None:
    results: list[Result | None] = [Dead("no"), None, Dead("no"), None]
    aside = Letters(away=True)
    with draining(results.__getitem__, awaited=awaited, aside=aside, handler_batch=4) as run:
        assert run.drained(keys(4)) == {1: "handled", 3: "handled"}


@BOTH
def test_a_batch_that_fails_meanwhile_is_not_handled_one_by_one(*, awaited: bool) -> None:
    def fails(_: int) -> None:
        raise ValueError

    with draining(fails, awaited=awaited, handler_batch=4) as run:
        assert run.drained(keys(4)) == {}
        assert run.began == [0, 1, 2, 3]


@BOTH
def test_nothing_is_placed_once_the_partition_is_gone(*, awaited: bool) -> None:
    letters = Letters()
    with draining([Dead("no")].__getitem__, awaited=awaited, aside=letters) as run:
        stretch = run.at_work(keys(1))
        assert not run.handover.drain([stretch], 0)
        run.go_on.set()
        until(lambda: stretch.at_work == 0, within=10, what="the handler's return")
    assert letters.dead == []
