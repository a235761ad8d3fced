"""Rows and records are matched in whatever order they come, and what is odd is a suspicion."""

from uuid import UUID

import pytest

from dovecote.audit.rules.ids import digest, partition_of
from dovecote.audit.rules.matching import (
    Bounds,
    Matcher,
    Raw,
    Read,
    Seen,
    milliseconds,
    place_of,
    placed,
)

ID = [UUID(int=(0x7000 << 64) | 1 << 63 | n) for n in range(4)]


def row(n: int, *, value: bytes = b"v", at: int = 0) -> Read:
    return (n, at, "orders", "/shop", ID[n].bytes, digest(b"k", value))


def record(n: int, offset: int, *, at: int = 0, partition: int = 0, **headers: bytes) -> Raw:
    known = {"ce_id": str(ID[n]).encode(), "ce_source": b"/shop", **headers}
    return (0, partition, offset, at, b"k", b"v", list(known.items()))


def matcher(partitions: int = 1) -> Matcher:
    made = Matcher(Bounds(late=1_000))
    made.topics[made.topic("orders")].partitions = partitions
    return made


@pytest.mark.parametrize("rows_first", [True, False])
def test_a_row_and_a_record_match_whichever_comes_first(*, rows_first: bool) -> None:
    made = matcher()
    for is_row in (rows_first, not rows_first):
        if is_row:
            made.take_rows(0, [row(0), row(1)], 1)
        else:
            made.take_records([record(0, 0), record(1, 1)], 1)
    assert made.topics[0].counts.matched == 2
    assert (made.rows, made.records, made.suspicions) == ({}, {}, [])


@pytest.mark.parametrize(
    ("rows", "records", "suspicions"),
    [
        ([row(0, value=b"w")], [record(0, 0)], ["altered"]),
        ([row(0), row(1)], [record(1, 0), record(0, 1)], ["disordered"]),
        ([row(0), row(1)], [record(0, 0), record(1, 1)], []),
    ],
)
def test_what_is_odd_is_a_suspicion(
    rows: list[Read], records: list[Raw], suspicions: list[str]
) -> None:
    made = matcher()
    made.take_rows(0, rows, 1)
    made.take_records(records, 2)
    assert [each.kind for each in made.suspicions] == suspicions


def test_a_record_in_another_partition_than_that_of_its_key_is_a_suspicion() -> None:
    wrong = 1 - partition_of(b"k", 2)
    made = matcher(2)
    made.take_rows(0, [row(0)], 1)
    made.take_records([record(0, 0, partition=wrong)], 2)
    assert [each.kind for each in made.suspicions] == ["misplaced"]


def test_copies_and_records_without_an_id_of_ours_are_only_counted() -> None:
    made = matcher()
    alone = made.take_records(
        [record(0, 0, dovecote_round=b"1"), record(1, 1, ce_id=b"order/7"), record(2, 2)], 1
    )
    counts = made.topics[0].counts
    assert (counts.copies, counts.foreign, counts.records, len(alone)) == (1, 1, 3, 1)


def test_a_late_record_is_counted_with_the_latest() -> None:
    made = matcher()
    made.take_rows(0, [row(0), row(1)], 1)
    made.take_records([record(0, 0, at=1_000), record(1, 1, at=1_001)], 2)
    assert (made.topics[0].counts.late, made.topics[0].counts.latest) == (1, 1_001)


def test_a_second_record_of_a_row_stays_open() -> None:
    made = matcher()
    made.take_rows(0, [row(0)], 1)
    made.take_records([record(0, 0), record(0, 1)], 2)
    assert [each.offset for each in made.records.values()] == [1]


@pytest.mark.parametrize("place", [(0, 0, 0), (3, 65_535, (1 << 40) - 1)])
def test_a_place_is_one_number(place: tuple[int, int, int]) -> None:
    seen = Seen(0, place[1], place[2], 0, b"", 0, None, "")
    assert placed(place_of(seen, place[0])) == place


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000])
def test_a_time_is_in_milliseconds_whatever_the_unit_of_its_timestamp(unit: int) -> None:
    assert milliseconds(1_700_000_000_000 * unit) == 1_700_000_000_000
    assert milliseconds(-1) == 0
