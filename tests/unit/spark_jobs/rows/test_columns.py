"""Rows as columns, from Arrow batches that end anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies import decode
from outbox.envelope import ATTEMPT, ID, ROUND, Record
from spark_jobs.rows.columns import read
from tests.unit.spark_jobs.made_rows import batches, record, rows

RECORDS = [
    record(0, None),
    record(1, None, id_="a"),
    record(2, "k", id_="b", round_=3),
    record(3, "k", id_="b"),
    record(4, "l", value=None),
]

_headers = st.lists(
    st.tuples(
        st.sampled_from([ID, ROUND, ATTEMPT, "other"]),
        st.none() | st.sampled_from([b"", b"1", b"7", b"x", b"\xff"]),
    ),
    max_size=4,
)
_records = st.lists(
    st.builds(
        Record,
        topic=st.sampled_from(["t", "u"]),
        partition=st.integers(0, 3),
        offset=st.integers(0, 2**40),
        timestamp=st.integers(0, 2**41),
        key=st.none() | st.binary(max_size=3),
        value=st.none() | st.binary(max_size=5),
        headers=_headers,
    ),
    min_size=1,
    max_size=12,
)


@given(_records, st.integers(1, 5))
def test_every_record_comes_out_as_it_went_in(records: list[Record], size: int) -> None:
    found = rows(*records, size=size)

    assert [found.record(row) for row in range(len(found))] == records


@given(_records, st.integers(1, 5))
def test_identities_are_those_that_decoding_tells(records: list[Record], size: int) -> None:
    for row, identity in enumerate(rows(*records, size=size).identities):
        assert identity == decode.identity(records[row])


def test_no_rows_are_none() -> None:
    assert read([]) is None
    assert read(iter([*batches([record(0)])][:0])) is None


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_key_goes_on_over_the_ends_of_arrow_batches_and_no_key_is_no_group(size: int) -> None:
    assert list(rows(*RECORDS, size=size).by_key()) == [[0], [1], [2, 3], [4]]


def test_the_digest_is_that_of_the_rows_however_they_were_cut() -> None:
    digests = {rows(*RECORDS, size=size).digest() for size in (1, 2, 5)}

    assert len(digests) == 1
    assert rows(*RECORDS[:-1]).digest() not in digests
    assert rows(*RECORDS[:-1], RECORDS[-1]._replace(topic="other")).digest() not in digests
    assert rows(*RECORDS[:-1], RECORDS[-1]._replace(offset=9)).digest() not in digests


def test_ranges_are_the_first_and_last_offsets_of_each_partition() -> None:
    found = rows(
        record(9, "a"),
        record(2, "b"),
        record(4, "b")._replace(partition=3),
        record(5, "c")._replace(topic="other"),
    )

    assert found.ranges() == {"in": {0: (2, 9), 3: (4, 4)}, "other": {0: (5, 5)}}
