from dataclasses import replace

import pytest

from dovecote.demo.check.deduplicated import Deduplicated, Topics, compare
from dovecote.demo.check.records import Record
from tests.unit.dovecote.demo.world import (
    BACK,
    DEAD,
    INPUT,
    RECORDS,
    RETRIED,
    TOLD,
    TOPICS,
    moved,
)


def with_headers(record: Record, **delivery: str) -> Record:
    changed = {f"dovecote_{name}": text for name, text in delivery.items()}
    return replace(record, headers={**record.headers, **changed})


def test_topics_in_which_each_event_counted_once_are_well() -> None:
    assert compare(INPUT, TOPICS) == Deduplicated(
        expected=4, got=4, wrong=0, retries=1, came_back=1, dead_letters=1, duplicates=1
    )


def left(*records: Record) -> Topics:
    return TOPICS._replace(departures=records)


FIRST, LATE = TOPICS.departures


@pytest.mark.parametrize(
    ("topics", "wrong"),
    [
        pytest.param(left(FIRST), 1, id="a departure is missing"),
        pytest.param(left(FIRST, LATE, LATE), 1, id="a departure is there twice"),
        pytest.param(left(moved("departures", 0, TOLD[2]), LATE), 2, id="the copy counted"),
        pytest.param(
            left(FIRST, LATE, moved("departures", 2, TOLD[6])), 1, id="a dead letter counted"
        ),
        pytest.param(
            left(FIRST, moved("departures", 1, TOLD[3]._replace(delay=6))), 2, id="another value"
        ),
        pytest.param(
            left(FIRST, moved("departures", 1, TOLD[3]._replace(id="x"))), 2, id="another id"
        ),
        pytest.param(TOPICS._replace(arrivals=TOPICS.arrivals[:1]), 1, id="an arrival is missing"),
        pytest.param(
            TOPICS._replace(departures=TOPICS.arrivals, arrivals=TOPICS.departures),
            8,
            id="topics are swapped",
        ),
        # The returned record has no record from which it came.
        pytest.param(TOPICS._replace(retry=[]), 2, id="a retry is missing"),
        pytest.param(TOPICS._replace(retry=[RETRIED, RETRIED]), 2, id="a retry is there twice"),
        pytest.param(TOPICS._replace(dead_letter=[]), 1, id="a dead letter is missing"),
        pytest.param(TOPICS._replace(dead_letter=[DEAD, DEAD]), 1, id="a dead letter twice"),
        *(
            pytest.param(
                TOPICS._replace(retry=[with_headers(RETRIED, **{name: text})]), 4, id=f"bad {name}"
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
    ],
)
def test_a_fault_in_the_jobs_topics_is_wrong(topics: Topics, wrong: int) -> None:
    found = compare(INPUT, topics)
    assert found.wrong == len(found.notes) == wrong


@pytest.mark.parametrize(
    ("records", "notes"),
    [
        pytest.param(
            RECORDS, ("departures: unexpected", "what came back: missing"), id="it did not"
        ),
        pytest.param([*INPUT, BACK], ("what came back: unexpected",), id="it came back twice"),
        pytest.param(
            [*RECORDS, replace(BACK, value=b'{"departure_delay": null}')],
            ("departures: unexpected", "what came back: missing", "what came back: unexpected"),
            id="it came back altered",
        ),
    ],
)
def test_what_comes_back_is_what_was_put_off_and_comes_once(
    records: list[Record], notes: tuple[str, ...]
) -> None:
    found = compare(records, TOPICS)
    assert tuple(note.split(" (")[0] for note in found.notes) == notes
