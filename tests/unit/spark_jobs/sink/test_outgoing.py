"""Records by columns are written as each of them alone would be."""

import pytest

from outbox import envelope
from outbox.envelope import Pair, Record
from spark_jobs.sink.outgoing import Joined, Outgoing, Results, written
from spark_jobs.sink.times import Bounds, fitted

COMMON: list[Pair] = [(envelope.TYPE, b"dovecote.sessions"), (envelope.SOURCE, b"q")]
RESULTS = Results(
    COMMON,
    topics=["out", "out"],
    keys=[b"a", None],
    values=[b"1", b"2"],
    ids=[b"q/x", b"q/y"],
    timestamps=[5, 0],
    sources=["", "t"],
    partitions=[-1, 3],
    offsets=[-1, 9],
)
ROWS = [
    Outgoing(
        "out",
        b"a",
        b"1",
        [(envelope.ID, b"q/x"), *COMMON],
        5,
        Record("", -1, -1, 5, b"a", None, [(envelope.ID, b"q/x"), *COMMON]),
    ),
    Outgoing(
        "out",
        None,
        b"2",
        [(envelope.ID, b"q/y"), *COMMON],
        0,
        Record("t", 3, 9, 0, None, None, [(envelope.ID, b"q/y"), *COMMON]),
    ),
]
LETTER = Outgoing("dead", b"k", None, [("a", b"1"), ("a", b"2")], 0, ROWS[1].origin)
ALL = Joined([RESULTS, [LETTER], RESULTS])


def test_columns_are_the_records_that_they_stand_for() -> None:
    assert list(RESULTS) == ROWS
    assert [RESULTS[0], RESULTS[-1], *RESULTS[1:]] == [ROWS[0], ROWS[1], ROWS[1]]
    with pytest.raises(IndexError):
        RESULTS[2]


def test_joined_records_keep_their_order() -> None:
    assert list(ALL) == [*ROWS, LETTER, *ROWS]
    assert len(ALL) == 5
    assert ALL[2] == LETTER
    assert ALL[3:] == ROWS


def test_writing_takes_the_fields_and_the_headers_in_their_order() -> None:
    found = [
        (*fields, list(headers.items()) if isinstance(headers, dict) else headers, time)
        for *fields, headers, time in written(ALL)
    ]
    assert found == [each[:5] for each in ALL]


def test_of_records_by_columns_those_are_restamped_that_their_topic_refuses() -> None:
    found, restamped = fitted(RESULTS, {"out": Bounds(10, 10)}, 1_000)
    assert restamped == 1
    assert [each.timestamp for each in found] == [0, 0]
