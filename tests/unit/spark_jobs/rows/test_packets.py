"""Rows packed by bucket come out as they went in, in the order their operator takes them."""

import random
import time
from typing import Any

import pyarrow as pa
import pytest

from outbox.envelope import Record
from spark_jobs.rows import packets
from spark_jobs.rows.packets import BucketRows, Pack

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = time.time_ns() // 1_000_000


def _record(n: int, topic: str = "t", partition: int = 0, time: int | None = None) -> Record:
    headers = [] if n % 3 else [("h", b"%d" % n), ("none", None)]
    value = None if n % 5 == 4 else b"v%d" % n
    return Record(topic, partition, n, NOW if time is None else time, b"k%d" % n, value, headers)


def _batch(records: list[Record], buckets: int) -> pa.RecordBatch:
    headers = [
        None if not each.headers else [{"key": k, "value": v} for k, v in each.headers]
        for each in records
    ]
    return pa.RecordBatch.from_pydict(
        {
            "topic": [each.topic for each in records],
            "partition": pa.array([each.partition for each in records], pa.int32()),
            "offset": [each.offset for each in records],
            "timestamp": pa.array([each.timestamp * 1000 for each in records], pa.timestamp("us")),
            "key": pa.array([each.key for each in records], pa.binary()),
            "value": pa.array([each.value for each in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "bucket": pa.array([each.offset % buckets for each in records], pa.int32()),
        }
    )


def _through(
    tasks: list[list[pa.RecordBatch]], buckets: int, max_lag: int | None = None, **how: Any
) -> dict[int, BucketRows]:
    by_bucket: dict[int, list[bytes]] = {}
    for batches in tasks:
        for out in Pack(range(buckets), max_lag)(batches):
            for row in out.to_pylist():
                by_bucket.setdefault(row["bucket"], []).append(row["packet"])
    recent = NOW - (max_lag or 0)
    given: dict[str, Any] = {"recent": recent, "by_offset": False, "with_headers": False, **how}
    return {bucket: packets.unpack(found, **given) for bucket, found in by_bucket.items()}


def _records(rows: BucketRows) -> list[Record]:
    return [Record(*fields) for fields in rows]


def test_every_row_comes_out_once_in_its_bucket_with_its_headers() -> None:
    records = [_record(n) for n in range(50)]
    tasks = [[_batch(records[:20], 3), _batch(records[20:30], 3)], [_batch(records[30:], 3)], []]
    found = _through(tasks, 3)
    for bucket, rows in found.items():
        expected = [each for each in records if each.offset % 3 == bucket]
        assert [rows.whole(row) for row in range(len(expected))] == expected
        assert [each._replace(headers=()) for each in expected] == _records(rows)
    whole = _through(tasks, 3, with_headers=True)
    assert sorted(each.offset for rows in whole.values() for each in _records(rows)) == [
        *range(50)
    ]
    assert _records(whole[0])[0].headers == [("h", b"0"), ("none", None)]


@pytest.mark.parametrize("by_offset", [False, True])
def test_the_order_does_not_depend_on_the_tasks(*, by_offset: bool) -> None:
    dice = random.Random(3)
    records = [
        _record(n, topic=dice.choice("ab"), partition=dice.randrange(2), time=dice.randrange(9))
        for n in range(40)
    ]
    expected = sorted(
        records,
        key=lambda r: (0 if by_offset else r.timestamp, r.topic, r.partition, r.offset),
    )
    for _ in range(5):
        dice.shuffle(records)
        tasks = [[_batch(records[:13], 1)], [_batch(records[13:], 1)]]
        found = _through(tasks, 1, by_offset=by_offset)[0]
        assert [each.offset for each in _records(found)] == [each.offset for each in expected]


def test_a_source_that_is_behind_tells_every_bucket() -> None:
    lag = 86_400_000  # the clock goes on from NOW while other tests run, but not so far
    old = [_record(n, partition=1, time=NOW - lag - 1) for n in range(2)]
    fresh = [_record(n) for n in range(2, 4)]
    for records, behind in (([*old, *fresh], True), (fresh, False)):
        found = _through([[_batch(records, 2)]], 4, max_lag=lag)
        assert {rows.is_behind for rows in found.values()} == {behind}
        assert set(found) == ({0, 1, 2, 3} if behind else {0, 1})
    assert not _through([[_batch(old, 1)]], 1)[0].is_behind


def test_the_clock_of_the_batch_decides_what_is_behind() -> None:
    lag = 600_000
    batch = _batch([_record(0, time=NOW - lag)], 1)
    for recent, behind in ((NOW - lag, False), (NOW - lag + 1, True)):
        assert _through([[batch]], 1, max_lag=lag, recent=recent)[0].is_behind is behind


def test_an_old_record_among_newer_ones_of_its_partition_is_no_sign() -> None:
    records = [_record(0, time=1), _record(1)]
    assert not _through([[_batch(records, 1)]], 1, max_lag=600_000)[0].is_behind
