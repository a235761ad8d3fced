"""Records that are taken by columns have the results of records taken one after the other."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import Closed, Failed, Inputs, Late, Output, Session

NOW = 1_700_000_000_000
AGGREGATES = ["list", "count", "sum", "first", "last", "min", "max"]
NUMBERS = st.integers(0, 9)
KEYS = st.sampled_from([b"1", b"2", b"19", b"new", b"other"])
VALUES = st.one_of(NUMBERS, st.integers(-(2**70), 2**70), st.text(max_size=4), st.none())
RECORDS = st.tuples(
    st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 60), st.one_of(NUMBERS, VALUES)
)
ORDERS = st.sampled_from(["sorted", "unsorted"])
STATES = st.sampled_from(["kept", "stored"])
BATCHES = st.lists(st.lists(RECORDS, max_size=12), min_size=1, max_size=4)
SETTINGS = st.fixed_dictionaries(
    {
        "gap": st.sampled_from(["3ms", "5ms"]),
        "grace": st.sampled_from(["0ms", "4ms", "20ms"]),
        "aggregate": st.sampled_from(AGGREGATES),
        "close_after": st.sampled_from(["off", "1s"]),
        "max_value_bytes": st.sampled_from([30, 60, 2**20]),
    }
)


def _inputs(records: Iterable[tuple[bytes, int, Any]], first: int) -> Inputs:
    rows = list(records)
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    count = len(rows)
    offsets = range(first, first + count)
    return Inputs(
        list(keys),
        list(times),
        list(values),
        ["t"] * count,
        [0] * count,
        offsets,
        [b""] * count,
        range(count),
    )


def _plain(outputs: Sequence[Output]) -> list[Output]:
    found: list[Output] = []
    for each in outputs:
        found += each.sessions() if isinstance(each, Closed) else [each]
    return found


def _operator(**settings: object) -> Sessions:
    return Sessions(SessionsSettings.model_validate(settings))


@given(
    SETTINGS, BATCHES, st.sampled_from(["sorted", "unsorted"]), st.sampled_from(["kept", "stored"])
)
def test_columns_give_what_rows_give(
    settings: dict[str, Any], batches: list[list[Any]], order: str, state: str
) -> None:
    operator = _operator(**settings)
    columns, rows = operator.start(), operator.start()
    clock = 0
    for number, batch in enumerate(batches):
        found = sorted(batch, key=lambda each: each[1]) if order == "sorted" else batch
        inputs = _inputs([(key, clock + time, value) for key, time, value in found], clock)
        now = NOW + number * 700
        one = operator.step(columns, inputs, now)
        other = operator.step(rows, list(inputs), now)
        assert _plain(one.outputs) == _plain(other.outputs)
        assert one.deadline == other.deadline
        data = encode(operator, one.state)
        assert data == encode(operator, other.state)
        assert data == encode(operator, decode(operator, data))
        columns, rows = one.state, other.state
        if state == "stored":
            columns, rows = decode(operator, data), decode(operator, data)
        clock += 30


def test_usual_records_are_taken_by_columns_alone() -> None:
    operator = _operator(gap="3ms", grace="0ms", aggregate="list")
    batch = [(b"a", 0, 1), (b"b", 1, 2), (b"a", 2, 3), (b"a", 9, 4), (b"b", 9, 5)]
    step = operator.step(operator.start(), _inputs(batch, 0), NOW)
    (closed,) = step.outputs
    assert isinstance(closed, Closed)
    assert list(closed.sessions()) == [
        Session("result", b"a", 0, 2, [1, 3], 2),
        Session("result", b"b", 1, 1, [2], 1),
    ]
    (again,) = operator.step(step.state, _inputs([(b"b", 10, 6), (b"a", 30, 7)], 5), NOW).outputs
    assert isinstance(again, Closed)
    assert list(again.sessions()) == [Session("result", b"a", 9, 9, [4], 1)]


@pytest.mark.parametrize(("aggregate", "bad"), [("sum", "text"), ("list", "x" * 60)])
def test_a_record_that_fails_leaves_the_other_keys_in_their_order(
    aggregate: str, bad: str
) -> None:
    operator = _operator(gap="3ms", grace="0ms", aggregate=aggregate, max_value_bytes=50)
    batch = [(b"a", 0, 1), (b"b", 0, bad), (b"c", 0, 2), (b"a", 9, 1), (b"b", 9, 1), (b"c", 9, 1)]
    late = [*batch, (b"a", 10, 1)]
    step = operator.step(operator.start(), _inputs(late, 0), NOW)
    failed, *closed = step.outputs
    assert isinstance(failed, Failed)
    assert (failed.record.key, failed.record.row) == (b"b", 1)
    assert [each.key for each in closed if isinstance(each, Session)] == [b"a", b"c"]
    assert list(step.state.keys) == [b"a", b"b", b"c"]
    (told,) = operator.step(step.state, _inputs([(b"a", 0, 1)], 9), NOW).outputs
    assert isinstance(told, Late)


def test_records_by_columns_are_a_sequence_of_inputs() -> None:
    inputs = _inputs([(b"a", 1, "x"), (b"b", 2, "y"), (b"c", 3, "z")], 7)
    assert [inputs[number] for number in range(3)] == list(inputs)
    assert list(inputs[1:]) == list(inputs)[1:]
    assert list(inputs.at([2, 0])) == [inputs[2], inputs[0]]
    assert inputs[2].row == 2


@given(
    st.sampled_from(["per_key", "per_partition", "global"]),
    st.lists(st.lists(st.tuples(KEYS, st.integers(0, 99), VALUES), max_size=4), max_size=8),
    st.lists(st.integers(-2_000, 5_000), min_size=8, max_size=8),
)
def test_a_state_of_which_little_has_changed_has_the_bytes_of_a_new_one(
    stream_time: str, batches: list[list[Any]], clocks: list[int]
) -> None:
    settings = {"gap": "9ms", "close_after": "2s", "forget_after": "3s", "aggregate": "last"}
    operator = _operator(**settings, stream_time=stream_time)
    first = [(b"%d" % number, 50, 2**70) for number in range(20)]
    state, moment = operator.start(), NOW
    for number, (batch, clock) in enumerate(zip([first, *batches], clocks, strict=False)):
        moment += clock
        state = operator.step(state, _inputs(batch, number * 50), moment).state
        data = encode(operator, state)
        assert data == encode(operator, decode(operator, data))
