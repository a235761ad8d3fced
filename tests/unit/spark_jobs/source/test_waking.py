"""The first batch of a run steps every bucket, as the log of offsets says."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_jobs.rows import packets
from spark_jobs.rows.packets import Pack
from spark_jobs.rows.records import Message
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.offsets import Offsets
from spark_jobs.source.stream import BEGIN, CONFIG, PACK, TASKS, PackingPlanner, Share, encode

ENDS = Offsets({"t": {0: 5}}, {"t": "id"})


def _together(partition: int, messages: Sequence[Message], buckets: int) -> int:  # noqa: ARG001  # as the protocol has it
    return 0


class _Cluster:
    def latest(self, *_: object, **__: object) -> Offsets:
        return ENDS


def _planner(*, wakes: bool = True) -> PackingPlanner:
    config = SourceConfig(kafka={"bootstrap.servers": "none"}, group="g", topics=("t",))
    planner = PackingPlanner(
        {
            CONFIG: config.encode(),
            BEGIN: ENDS.encode(),
            PACK: encode(Pack((0, 1), _together, wakes=wakes)),
            TASKS: "2",
        }
    )
    planner._cluster = _Cluster()  # type: ignore[assignment]  # as much of it as is asked
    return planner


def _next(planner: PackingPlanner, start: dict[str, Any]) -> dict[str, Any]:
    return planner.latestOffset(start, ReadAllAvailable())


def _wakes(planner: PackingPlanner, start: dict[str, Any], end: dict[str, Any]) -> list[bool]:
    return [each.wakes for each in planner.partitions(start, end) if isinstance(each, Share)]


def test_the_first_batch_of_each_run_wakes_and_the_next_one_does_not() -> None:
    first, again = _planner(), _planner()
    one = _next(first, ENDS.fields())
    assert _next(first, ENDS.fields()) == one  # Spark may ask more than once
    assert _next(first, one) == one  # nothing is new
    two = _next(again, one)

    assert _wakes(first, ENDS.fields(), one) == [True]
    assert _wakes(first, one, one) == [False]
    assert _wakes(again, one, two) == [True]
    assert Offsets.of(two).ends == ENDS.ends
    assert Offsets.of(two).ids == ENDS.ids


def test_a_batch_after_the_clock_has_gone_back_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, now = _planner(), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    one = _next(planner, ENDS.fields())
    monkeypatch.setattr(time, "time", lambda: now - 0.5)
    assert _next(planner, one) == one
    monkeypatch.setattr(time, "time", lambda: now - 3_600)
    two = _next(planner, one)
    assert two != one
    assert _next(planner, two) == two


def test_a_job_without_timers_is_not_woken() -> None:
    assert _next(_planner(wakes=False), ENDS.fields()) == ENDS.fields()


def test_every_bucket_is_woken_although_nothing_was_read() -> None:
    (batch,) = Pack((3, 7), _together)([], wakes=True)
    found = {row["bucket"]: row["packet"] for row in batch.to_pylist()}
    assert set(found) == {3, 7}
    rows = packets.unpack(found.values(), recent=0, by_offset=True, with_headers=False)
    assert (rows.is_woken, rows.is_behind, len(rows)) == (True, False, 0)
