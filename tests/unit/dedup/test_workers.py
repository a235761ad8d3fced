"""A consumer's own threads and loop serve a key that was held."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from dedup.retries.aside import HoldInPlace
from dedup.rules.lanes.lanes import Lanes
from dedup.rules.policies.results import Done, Result, Retry
from dedup.rules.record import Record
from dedup.serving.handover import Completed, Handover
from dedup.settings.consumer import ConsumerSettings
from dedup.workers import workers_for
from tests.support.waiting import until


@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "loop"])
def test_the_first_match_is_one_though_its_first_attempt_failed(*, awaited: bool) -> None:
    settings = ConsumerSettings.model_validate(
        {
            "topics": ["t"],
            "group": "g",
            "kafka": {"bootstrap.servers": "x"},
            "policy": "first_match",
            "retries": {"tiers": [{"topic": "t.retry"}], "dead_letter_topic": "t.dead"},
        }
    )
    seen: list[int] = []
    failures: list[BaseException] = []

    def handler(record: Record) -> Result:
        seen.append(record.offset)
        return Retry("once") if len(seen) == 1 else Done()

    async def handler_awaited(record: Record) -> Result:
        return handler(record)

    handover = Handover(Lanes())
    with handover.lock:
        stretch = handover.lanes.begin("t", 0)
        handover.lanes.open(stretch)
    with ThreadPoolExecutor(1) as threads:
        workers = workers_for(
            settings,
            handler_awaited if awaited else handler,
            handover,
            aside=HoldInPlace(timedelta(milliseconds=10)),
            passes=None,
            threads=threads,
            failed=failures.append,
        )
        records = [Record("t", 0, n, 0, b"k", b"1", (("ce_id", b"e%d" % n),)) for n in range(3)]
        workers.wake(handover.offer([(stretch, {b"k": records})]))
        completed: list[Completed] = []

        def all_completed() -> bool:
            workers.wake(handover.release()[0])
            workers.reclaim()
            for report in handover.collect():
                completed.extend(report.completed)
            return len(completed) == len(records)

        until(all_completed, within=10, what="all of the key completed")
        workers.close()
    assert seen == [0, 0]
    assert [each.outcome for each in completed] == ["handled", "skipped", "skipped"]
    assert failures == []
