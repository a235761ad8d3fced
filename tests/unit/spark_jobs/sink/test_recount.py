"""A record that its topic refuses moves from the count that it was in to the dead letters."""

import pytest

from outbox.envelope import ERROR, NOT_BEFORE, Pair, Record
from spark_jobs.sink.markers import Counts
from spark_jobs.sink.outgoing import Outgoing
from spark_jobs.sink.recount import of_results, of_rows

RECORD = Record("in", 0, 7, 1, b"k", b"v", [])
BEFORE = Counts(rows=9, handled=5, skipped={"late": 1}, retried=2, dead=1)
LATER: Pair = (NOT_BEFORE, b"1")


def _to(topic: str, *headers: Pair) -> Outgoing:
    return Outgoing(topic, b"k", b"v", [*headers], 0, RECORD)


@pytest.mark.parametrize(
    ("record", "handled", "retried"),
    [
        (_to("out"), 4, 2),
        (_to("retry", LATER, (ERROR, b"no")), 5, 1),
        (_to("retry"), 5, 1),  # it lay in the partition of another lane
        (_to("retry", LATER), 4, 2),  # its handler asked for it again
    ],
)
def test_a_row_is_taken_from_the_count_that_it_was_in(
    record: Outgoing, handled: int, retried: int
) -> None:
    found = of_rows("retry", BEFORE, record, again=False)
    assert (found.handled, found.retried, found.dead) == (handled, retried, 2)
    assert (found.rows, found.skipped) == (BEFORE.rows, BEFORE.skipped)


def test_a_row_of_several_outputs_is_dead_once() -> None:
    assert of_rows("retry", BEFORE, _to("out"), again=True) == BEFORE


@pytest.mark.parametrize(("topic", "handled"), [("out", 4), ("late", 5)])
def test_a_result_is_taken_from_the_handled_ones_and_a_late_record_is_not(
    topic: str, handled: int
) -> None:
    found = of_results("late", BEFORE, _to(topic))
    assert (found.handled, found.dead, found.skipped) == (handled, 2, {"late": 1})
