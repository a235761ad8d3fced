from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outbox.envelope import NOT_BEFORE, UNREAD_HEADERS, Record
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.reading import reader
from spark_jobs.operators.settings import DelaySettings
from spark_jobs.operators.step import Failed, Input, Released

READ = reader(DelaySettings())


def waiting(offset: int, until: int | None, key: bytes | None = b"k") -> Input:
    headers = [] if until is None else [(NOT_BEFORE, str(until).encode())]
    found = READ(Record("retry", 0, offset, 0, key, b"v", headers), None)
    assert isinstance(found, Input)
    return found


def released(
    batches: Sequence[tuple[int, Sequence[Input]]], *, restart: bool = False
) -> list[tuple[int, int]]:
    """Return when each record went on, and its offset."""
    operator = Delay(DelaySettings())
    state = operator.start()
    found: list[tuple[int, int]] = []
    for now, records in batches:
        state, outputs, _ = operator.step(state, records, now)
        found += [(now, each.value.offset) for each in outputs if isinstance(each, Released)]
        if restart:
            state = decode(operator, encode(operator, state))
    return found


def test_a_record_goes_on_when_its_time_has_come_and_not_before() -> None:
    batches: list[tuple[int, list[Input]]] = [
        (5, [waiting(0, 30), waiting(1, 20), waiting(2, None), waiting(3, 4, None)]),
        (19, []),
        (20, []),
        (99, [waiting(4, 99)]),
    ]
    assert released(batches) == [(5, 2), (5, 3), (20, 1), (99, 0), (99, 4)]


def test_the_deadline_is_the_earliest_of_those_that_wait() -> None:
    operator = Delay(DelaySettings())
    state, _, deadline = operator.step(operator.start(), [waiting(0, 30), waiting(1, 20)], 0)
    assert deadline == 20
    assert operator.step(state, [], 30).deadline is None


def test_a_record_goes_on_as_it_came() -> None:
    operator = Delay(DelaySettings())
    state, _, _ = operator.step(operator.start(), [waiting(7, 30)], 0)
    state = decode(operator, encode(operator, state))
    (found,) = operator.step(state, [], 30).outputs
    assert found == Released(Record("retry", 0, 7, 0, b"k", b"v", [(NOT_BEFORE, b"30")]))


def test_a_time_that_cannot_be_read_is_a_failure() -> None:
    found = READ(Record("retry", 0, 0, 0, b"k", b"v", [(NOT_BEFORE, b"soon")]), None)
    assert isinstance(found, Failed)
    assert NOT_BEFORE in found.reason


def test_headers_that_cannot_be_read_are_a_failure_and_not_the_end_of_the_job() -> None:
    found = READ(Record("retry", 0, 0, 0, b"k", b"v", [*UNREAD_HEADERS]), None)
    assert isinstance(found, Failed)
    assert "not UTF-8" in found.reason


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=20))
def test_restarts_change_nothing(found: list[tuple[int, int]]) -> None:
    batches: list[Any] = [
        (now, [waiting(n, until)]) for n, (now, until) in enumerate(sorted(found))
    ]
    batches.append((100, []))
    once = released(batches)
    assert released(batches, restart=True) == once
    assert sorted(offset for _, offset in once) == list(range(len(found)))
