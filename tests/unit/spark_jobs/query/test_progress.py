"""The line that is shown of a batch."""

import json

import pytest

from spark_jobs.query.batch import BatchReport
from spark_jobs.query.progress import (
    Summary,
    lacks_ends_of_topics,
    lags,
    line,
    summary,
    with_ends_of_topics,
)
from spark_jobs.sink.markers import Counts

REPORTS = [
    BatchReport(
        partition=0, counts=Counts(rows=3, handled=1, skipped={"filtered": 2}), newest=500
    ),
    BatchReport(
        partition=2,
        counts=Counts(rows=5, handled=2, skipped={"duplicate": 1}, retried=1, dead=1),
        newest=900,
        replayed=True,
    ),
]
PROGRESS = {
    "batchId": 4,
    "durationMs": {"triggerExecution": 250},
    "sources": [
        {
            "endOffset": {"t": {"0": 10, "1": 4}, "u": {"0": 7}},
            "latestOffset": {"t": {"0": 15, "1": 4}, "u": {"0": 9}, "v": {"0": 3}},
        }
    ],
}


def test_a_report_comes_back_as_it_was_encoded() -> None:
    for report in REPORTS:
        assert BatchReport.decode(report.encode()) == report


def test_an_error_comes_back_as_it_was_raised() -> None:
    report = BatchReport(partition=1, error="MarkerRefused", message="run --adopt")

    error = BatchReport.decode(report.encode()).exception()

    assert type(error).__name__ == "MarkerRefused"
    assert str(error) == "run --adopt"
    assert REPORTS[0].exception() is None


def test_a_batch_is_shown_with_its_rate_and_what_is_still_to_come() -> None:
    shown = line("q", PROGRESS, summary(REPORTS), now=2_900)

    assert json.loads(shown.json()) == {
        "query": "q",
        "batch": 4,
        "rows": 8,
        "handled": 3,
        "skipped": {"duplicate": 1, "filtered": 2},
        "retried": 1,
        "dead": 1,
        "replayed": 1,
        "seconds": 0.25,
        "rows_per_s": 32.0,
        "lag_rows": 10,
        "lag_seconds": 2.0,
        "misplaced": 0,
        "expired": 0,
        "restamped": 0,
    }
    assert str(shown) == (
        "batch 4: 8 rows | handled 3 | skipped: duplicate 1, filtered 2 | retried 1 | dead 1 "
        "| 0.25 s, 32 rows/s | lag 10 rows, 2.0 s | 1 partitions were written before"
    )


def test_what_lay_elsewhere_and_what_is_gone_is_shown() -> None:
    reports = [BatchReport(partition=0, misplaced=2), BatchReport(partition=1, expired=3)]

    shown = line("q", PROGRESS, summary(reports), now=2_900)

    assert (shown.misplaced, shown.expired) == (2, 3)
    assert " | misplaced 2 | expired 3" in str(shown)


def test_the_id_of_a_topic_is_no_partition() -> None:
    source = {"endOffset": {"t": {"0": 5, "id": "x"}}, "latestOffset": {"t": {"0": 7, "id": "x"}}}

    assert lags({"sources": [source]}) == {("t", 0): 2}


def test_what_a_batch_only_waited_is_no_part_of_its_time() -> None:
    shown = line("q", PROGRESS, summary([], held=0.15), now=2_900)

    assert shown.seconds == pytest.approx(0.1)


def test_without_lag_in_rows_there_is_none_in_seconds() -> None:
    caught_up = {**PROGRESS, "sources": [{"endOffset": None, "latestOffset": None}]}

    shown = line("q", caught_up, Summary(counts=Counts(), replayed=0, newest=1), now=10_000)

    assert (shown.lag_rows, shown.lag_seconds) == (0, 0.0)


def test_the_lag_of_a_batch_that_came_again_is_that_of_the_topics() -> None:
    source = {"endOffset": {"t": {"0": 5}}, "latestOffset": None}
    again = {**PROGRESS, "sources": [source]}
    assert lags(again) == {}
    assert lacks_ends_of_topics(again)

    known = with_ends_of_topics(again, {"t": {"0": 12_912, "id": "x"}})

    assert lags(known) == {("t", 0): 12_907}
    assert not lacks_ends_of_topics(known)
    assert not lacks_ends_of_topics({"sources": [{"endOffset": None, "latestOffset": None}]})
    assert with_ends_of_topics(PROGRESS, {"t": {"0": 99}}) == PROGRESS
