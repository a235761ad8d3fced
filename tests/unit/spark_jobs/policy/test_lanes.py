"""Tasks of a job without state report what they have read."""

import marshal
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from spark_jobs.policy import lanes
from spark_jobs.policy.lanes import Turns
from spark_jobs.policy.stage import StageConfig, Taken
from spark_jobs.query.batch import Batch, BatchReport
from spark_jobs.rows.records import shipped
from spark_jobs.source.config import SourceConfig
from spark_jobs.source.fetching import Fetched
from spark_jobs.source.offsets import Range
from tests.unit.spark_jobs.made_rows import Message, record

NOW = 1_700_000_000_000


def _settle(*_: object, take: Callable[[], Taken], **__: object) -> BatchReport:
    return BatchReport(partition=0, newest=take().newest)


@pytest.mark.parametrize(
    ("timestamp", "newest"), [(NOW, NOW), (NOW * 1_000, NOW), (NOW * 1_000_000, NOW), (-1, 0)]
)
def test_the_newest_time_is_in_milliseconds_whatever_the_unit_of_timestamps(
    timestamp: int, newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = Message(record(0)._replace(timestamp=timestamp))
    monkeypatch.setattr(lanes, "settle", _settle)
    monkeypatch.setattr(lanes, "fetch", lambda *_: [Fetched(Range("in", 0, 0, 1), [message])])
    turns = Turns(
        cast("StageConfig", SimpleNamespace(partitions=1)),
        cast("SourceConfig", SimpleNamespace(most_bytes=None)),
        Batch(query="q", number=0, now=NOW),
        "digest",
        {},
        "",
    )
    packet = marshal.dumps([("in", 0, 0, 0, [shipped(message)])])

    found = [*turns.read_and_settle([(0, [])]), *turns.unpack_and_settle([(0, packet)])]

    assert [BatchReport.decode(each).newest for each in found] == [newest, newest]
