"""Records of a turn, of which only the needed ones are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.history import believed
from dedup.rules.identity import identity, of_topic
from outbox.envelope import ATTEMPT, ID, ORIGIN, ROUND, SOURCE, Pair, Record
from spark_jobs.rows.records import Message, Messages, Records, Shipped, by_key, shipped


class _Message:
    """A message of the client, with the fields of a record."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def topic(self) -> str:
        return self._record.topic

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def headers(self) -> list[Pair] | None:
        return list(self._record.headers) or None


def _rows(records: list[Record]) -> list[Records]:
    messages: list[Message] = [_Message(each) for each in records]
    ids = {"in": "ID"}
    return [Messages([*messages], ids), Shipped([shipped(each) for each in messages], ids)]


_HEADERS = st.lists(
    st.tuples(
        st.sampled_from([ID, SOURCE, ATTEMPT, ROUND, ORIGIN, "ce_type", ""]),
        st.sampled_from([None, b"", b"1", b"2", b"e", b"ID/0/1", b"\xff"]),
    ),
    max_size=5,
)


@given(st.lists(st.tuples(st.sampled_from([None, b"", b"a", b"b"]), _HEADERS), max_size=8))
def test_an_identity_is_what_decoding_the_record_says(
    given: list[tuple[bytes | None, list[Pair]]],
) -> None:
    records = [
        of_topic(Record, "ID")("in", 0, at, at, key, b"v", tuple(headers))
        for at, (key, headers) in enumerate(given)
    ]
    known_as = [each._replace(headers=believed(each.headers, retry=True)) for each in records]
    identities = [identity(each) for each in known_as]

    numbers = list(range(len(records)))
    for rows in _rows(records):
        assert rows.keys == [each.key for each in records]
        assert [rows.identity(row) for row in numbers] == identities
        if isinstance(rows, Shipped):
            for row, known in enumerate(identities):
                assert rows.remembered(row) in {known, None}
                assert rows.remembered(row) == known or known.id == f"ID/0/{row}"
        for row in numbers:
            made = rows.record(row)
            assert [*made.headers] == [*known_as[row].headers]
            assert made[:6] == records[row][:6]
            assert rows.fingerprint(row) == b"v"
    for of in identities:
        for rows in _rows(records):
            assert rows.duplicates(numbers, of) == identities.count(of)
            rows.let_go(numbers)  # again does no harm


@pytest.mark.parametrize("time", [-1, 0, 1_700_000_000_000_000_000, 2**63 - 1])
def test_a_record_of_any_time_can_be_made(time: int) -> None:
    for rows in _rows([Record("in", 0, 0, time, None, None)]):
        assert rows.record(0).timestamp == time


def test_rows_of_a_key_meet_and_rows_without_a_key_are_alone() -> None:
    keys = [b"b", None, b"a", b"b", b"", None]

    assert by_key(keys) == [
        (b"b", [0, 3]),
        (b"a", [2]),
        (b"", [4]),
        (None, [1]),
        (None, [5]),
    ]
