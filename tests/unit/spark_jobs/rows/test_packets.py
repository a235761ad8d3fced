"""Rows packed by bucket come out as they went in, in the order their operator takes them."""

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from outbox.envelope import Record
from spark_jobs.rows import packets
from spark_jobs.rows.packets import BucketRows, Pack, Read
from spark_jobs.rows.records import Message
from tests.unit.spark_jobs.made_rows import packed, read

NOW = time.time_ns() // 1_000_000


def _record(n: int, topic: str = "t", partition: int = 0, time: int | None = None) -> Record:
    headers = [] if n % 3 else [("h", b"%d" % n), ("none", None)]
    value = None if n % 5 == 4 else b"v%d" % n
    return Record(topic, partition, n, NOW if time is None else time, b"k%d" % n, value, headers)


def _by_offset(partition: int, messages: Sequence[Message], buckets: int) -> list[int]:  # noqa: ARG001  # as the protocol has it
    return [(each.offset() or 0) % buckets for each in messages]


def _together(partition: int, messages: Sequence[Message], buckets: int) -> int:  # noqa: ARG001  # as above
    return partition % buckets


def _through(
    tasks: list[list[Read]], buckets: int, max_lag: int | None = None, **how: Any
) -> dict[int, BucketRows]:
    found = packed(Pack(range(buckets), _by_offset, max_lag), tasks)
    given: dict[str, Any] = {
        "recent": NOW - (max_lag or 0),
        "by_offset": False,
        "with_headers": False,
        **how,
    }
    return {bucket: packets.unpack(each, **given) for bucket, each in found.items()}


def _records(rows: BucketRows) -> list[Record]:
    return [Record(*fields) for fields in rows]


def test_every_row_comes_out_once_in_its_bucket_with_its_headers() -> None:
    records = [_record(n, partition=n // 10) for n in range(50)]

    def tasks() -> list[list[Read]]:
        return [[*read(records[:20])], [*read(records[20:])], []]

    found = _through(tasks(), 3)
    for bucket, rows in found.items():
        expected = [each for each in records if each.offset % 3 == bucket]
        assert [rows.whole(row) for row in range(len(expected))] == expected
        assert [each[:6] for each in expected] == [each[:6] for each in _records(rows)]
    whole = _through(tasks(), 3, with_headers=True)
    assert sorted(each.offset for rows in whole.values() for each in _records(rows)) == [
        *range(50)
    ]
    assert _records(whole[0])[0].headers == [("h", b"0"), ("none", None)]


def test_a_partition_may_be_one_bucket() -> None:
    records = [_record(n, partition=n % 3) for n in range(9)]
    found = packed(Pack((7, 8), _together), [read(records)])
    rows = {
        bucket: packets.unpack(each, recent=0, by_offset=True, with_headers=False)
        for bucket, each in found.items()
    }
    assert {bucket: {each.partition for each in _records(of)} for bucket, of in rows.items()} == {
        7: {0, 2},
        8: {1},
    }


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
        ranges = [*read(records)]
        dice.shuffle(ranges)
        found = _through([ranges[:1], ranges[1:]], 1, by_offset=by_offset)[0]
        assert [each[:6] for each in _records(found)] == [each[:6] for each in expected]
        assert [found.whole(row) for row in range(40)] == expected


def test_a_source_that_is_behind_tells_every_bucket() -> None:
    lag = 86_400_000  # the clock goes on from NOW while other tests run, but not so far
    old = [_record(n, partition=1, time=NOW - lag - 1) for n in range(2)]
    fresh = [_record(n) for n in range(2, 4)]
    for records, behind in (([*old, *fresh], True), (fresh, False)):
        found = _through([[*read(records)]], 4, max_lag=lag)
        assert {rows.is_behind for rows in found.values()} == {behind}
        assert set(found) == ({0, 1, 2, 3} if behind else {2, 3})
    assert not _through([[*read(old)]], 1)[0].is_behind


def test_the_clock_of_the_batch_decides_what_is_behind() -> None:
    lag = 600_000
    for recent, behind in ((NOW - lag, False), (NOW - lag + 1, True)):
        assert (
            _through([[*read([_record(0, time=NOW - lag)])]], 1, max_lag=lag, recent=recent)[
                0
            ].is_behind
            is behind
        )


def test_an_old_record_among_newer_ones_of_its_partition_is_no_sign() -> None:
    records = [_record(0, time=1), _record(1)]
    assert not _through([[*read(records)]], 1, max_lag=600_000)[0].is_behind


@pytest.mark.parametrize("odd", [-1, 0, 1_700_000_000_000_000_000, 2**63 - 1])
def test_any_timestamp_that_kafka_takes_can_be_read(odd: int) -> None:
    records = [_record(0), _record(1, time=odd), _record(2)]
    found = _through([[*read(records)]], 1, max_lag=600_000)[0]
    assert sorted(each.timestamp for each in _records(found)) == sorted([NOW, odd, NOW])
    units = {1_700_000_000_000_000_000: 1_000_000, 2**63 - 1: 1_000_000}
    assert found.newest == max(NOW, odd // units.get(odd, 1))


def test_a_record_of_the_future_does_not_hide_that_its_partition_is_behind() -> None:
    lag, hour = 600_000, 3_600_000
    old = [_record(n, time=NOW - lag - 1) for n in range(2)]
    future = _record(2, time=NOW + 2 * hour)
    for records, behind in (
        ([*old, future], True),
        ([*old, _record(2), _record(3, time=NOW + 2 * hour)], False),
        ([future], False),
        ([*old, _record(2, time=-1)], True),
    ):
        packs = packed(Pack(range(2), _by_offset, lag, hour), [[*read(records)]])
        for each in packs.values():
            rows = packets.unpack(
                each, recent=NOW - lag, ahead=NOW + hour, by_offset=False, with_headers=False
            )
            assert rows.is_behind is behind
            assert rows.newest <= NOW


def test_offsets_that_were_deleted_are_told_once_with_or_without_rows() -> None:
    records = [_record(n) for n in range(4)]
    found = _through([[*read(records, expired=9)], [(("t", 5, 0, 3), [], 3)]], 2)
    assert sum(rows.expired for rows in found.values()) == 12
    assert sum(len(rows) for rows in found.values()) == 4
    (alone,) = _through([[(("t", 5, 0, 3), [], 3)]], 2).values()
    assert (len(alone), alone.expired, alone.newest) == (0, 3, 0)


def test_a_task_that_has_read_nothing_yields_nothing() -> None:
    assert _through([[], [(("t", 5, 0, 3), [], 0)]], 2, max_lag=1) == {}
