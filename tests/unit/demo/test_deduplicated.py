from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from demo.check.deduplicated import Deduplicated, Topics, compare
from demo.check.records import Batch, Counts, Marker, Record, Spark
from tests.unit.demo.world import (
    BATCHES,
    DEAD,
    MARKERS,
    RECORDS,
    RETRIED,
    SPARK,
    TOLD,
    TOPICS,
    departure,
)


def with_headers(record: Record, **delivery: str) -> Record:
    changed = {f"dovecote_{name}": text for name, text in delivery.items()}
    return replace(record, headers={**record.headers, **changed})


def test_topics_as_first_match_makes_them_are_well() -> None:
    assert compare(RECORDS, SPARK, TOPICS) == Deduplicated(
        expected=3,
        got=3,
        wrong=0,
        retries=1,
        dead_letters=1,
        batches=2,
        counts=Counts(rows=9, handled=3, filtered=3, duplicate=1, retried=1, dead=1),
    )


def output(*records: Record) -> Topics:
    return TOPICS._replace(output=records)


DEPARTURES: Sequence[Record] = TOPICS.output


@pytest.mark.parametrize(
    ("topics", "wrong"),
    [
        pytest.param(output(*DEPARTURES[:2]), 1, id="a winner is missing"),
        pytest.param(output(*DEPARTURES, DEPARTURES[0]), 1, id="a winner is there twice"),
        pytest.param(output(departure(0, TOLD[2]), *DEPARTURES[1:]), 2, id="the copy won"),
        pytest.param(
            output(DEPARTURES[0], departure(1, TOLD[3]), DEPARTURES[2]), 2, id="a failure won"
        ),
        pytest.param(
            output(*DEPARTURES[:2], departure(2, TOLD[5]._replace(delay=6))), 2, id="another value"
        ),
        pytest.param(
            output(*DEPARTURES[:2], departure(2, TOLD[5]._replace(id="x"))), 2, id="another id"
        ),
        pytest.param(TOPICS._replace(retry=[]), 1, id="a retry is missing"),
        pytest.param(TOPICS._replace(retry=[RETRIED, RETRIED]), 1, id="a retry is there twice"),
        pytest.param(TOPICS._replace(dead_letter=[]), 1, id="a dead letter is missing"),
        pytest.param(TOPICS._replace(dead_letter=[DEAD, DEAD]), 1, id="a dead letter twice"),
        pytest.param(
            TOPICS._replace(retry=[], dead_letter=[RETRIED, DEAD]), 2, id="given up at once"
        ),
        *(
            pytest.param(
                TOPICS._replace(retry=[with_headers(RETRIED, **{name: text})]), 2, id=f"bad {name}"
            )
            for name, text in [
                ("attempt", "1"),
                ("round", "0"),
                ("error", "why not"),
                ("origin", "flights/0/5"),
                ("not_before", "1000"),
            ]
        ),
        pytest.param(
            TOPICS._replace(dead_letter=[with_headers(DEAD, attempt="2")]), 2, id="dead at 2"
        ),
        pytest.param(
            TOPICS._replace(retry=[replace(RETRIED, value=b'{"flight": "LATE"}')]), 2, id="altered"
        ),
    ],
)
def test_a_fault_in_the_jobs_topics_is_wrong(topics: Topics, wrong: int) -> None:
    found = compare(RECORDS, SPARK, topics)
    assert found.wrong == len(found.notes) == wrong
    assert found.expected == 3
    assert found.got == len(topics.output)


def test_the_rule_is_one_about_a_batch() -> None:
    """In a single batch OK1 has one winner, so the second one is too many."""
    spark = Spark(
        query="q",
        batches=[Batch(0, {}, {0: 9, 1: 5})],
        uncommitted=[],
        markers=[
            Marker(
                query="q",
                batch=0,
                partition=0,
                partitions=1,
                ranges={0: (0, 7), 1: (0, 3)},
                counts=Counts(9, 2, filtered=3, superseded=1, duplicate=1, retried=1, dead=1),
            )
        ],
    )
    found = compare(RECORDS, spark, TOPICS)
    assert (found.expected, found.got, found.wrong) == (2, 3, 1)


def marked(number: int, **changes: Any) -> list[Marker]:  # any field's value
    return [*MARKERS[:number], MARKERS[number]._replace(**changes), *MARKERS[number + 1 :]]


@pytest.mark.parametrize(
    ("spark", "note"),
    [
        pytest.param(
            SPARK._replace(markers=marked(0, ranges={0: (0, 1)})),
            "flights/0/3: in batch None by the markers, [0] by Spark's log",
            id="a gap between the ranges",
        ),
        pytest.param(
            SPARK._replace(markers=marked(2, ranges={0: (3, 7), 1: (2, 3)})),
            "flights/0/3: in batch [0, 1] by the markers, [0] by Spark's log",
            id="ranges that overlap",
        ),
        pytest.param(
            SPARK._replace(markers=marked(0, ranges={0: (0, 2)})),
            "batch 0, marker 0: no record at 0/2",
            id="a range that ends where nothing is",
        ),
        pytest.param(
            SPARK._replace(batches=[Batch(0, {}, {0: 3, 1: 2}), BATCHES[1]]),
            "flights/0/3: in batch [0] by the markers, None by Spark's log",
            id="a batch that left out a record",
        ),
        pytest.param(
            SPARK._replace(batches=BATCHES[:1], uncommitted=[1]),
            "batch 1 was planned and not committed",
            id="a batch without an end",
        ),
        pytest.param(
            SPARK._replace(markers=[*MARKERS, MARKERS[3]]),
            "marker (1, 1) is there 2 times",
            id="a batch that was written twice",
        ),
        pytest.param(
            SPARK._replace(markers=marked(1, query="other")),
            "batch 0, marker 1: of query other, not q",
            id="a marker of another query",
        ),
        pytest.param(
            SPARK._replace(markers=marked(1, partitions=3)),
            "markers of different shuffles: [2, 3]",
            id="another number of shuffle partitions",
        ),
        pytest.param(
            SPARK._replace(markers=marked(3, counts=Counts(rows=2, handled=1, filtered=1))),
            "batch 1: the markers count 0 retried, not 1",
            id="a marker that counts wrongly",
        ),
    ],
)
def test_a_fault_in_the_batches_is_wrong(spark: Spark, note: str) -> None:
    found = compare(RECORDS, spark, TOPICS)
    assert found.wrong > 0
    assert note in found.notes


def test_a_record_that_was_never_read_is_wrong() -> None:
    behind = replace(RECORDS[5], offset=11)
    found = compare([*RECORDS[:6], behind, *RECORDS[6:]], SPARK, TOPICS)
    assert found.wrong == 1
    assert found.notes == ("flights/0/11: in batch None by the markers, None by Spark's log",)
