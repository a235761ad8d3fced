from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outbox.errors import BadSettings
from spark_jobs.operators.sessions.aggregates import load
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import SessionsSettings
from spark_jobs.operators.step import Input, Late
from tests.unit.spark_jobs.operators.kafka_model import final_by_emit, final_by_suppress, updates
from tests.unit.spark_jobs.operators.traces import (
    brief,
    cuts,
    golden,
    in_partitions,
    ms,
    record,
    run,
    sessions,
    whole,
)


def said(text: str) -> list[tuple[Any, ...]]:
    """Return lines from `A[10,12]=1+2`, `-A[10,10]` and `!A[10,12]=1+2` (final)."""
    found: list[tuple[Any, ...]] = []
    for each in text.split():
        kind = {"-": "retract", "!": "result"}.get(each[0], "update")
        window, _, values = each.lstrip("-!").partition("=")
        key, _, bounds = window.rstrip("]").partition("[")
        start, end = map(int, bounds.split(","))
        found.append((kind, key, start, end, values.split("+") if values else None))
    return found


def test_neighbours_at_the_gap_are_of_one_session_and_one_further_are_not() -> None:
    assert whole(sessions(grace=100), golden("A:0:1 A:5:2 A:11:3")) == said(
        "A[0,0]=1 -A[0,0] A[0,5]=1+2 A[11,11]=3"
    )


@pytest.mark.parametrize(
    ("grace", "trace", "expected"),
    [
        (
            0,
            "A:10:1 A:12:2 A:20:3 A:16:4",
            "A[10,10]=1 -A[10,10] A[10,12]=1+2 A[20,20]=3 !A[10,12]=1+2 -A[20,20] A[16,20]=3+4",
        ),
        (
            1000,
            "A:0:1 A:10:2 A:5:3 A:20:4 A:15:5",
            """A[0,0]=1 A[10,10]=2 -A[0,0] -A[10,10] A[0,10]=1+2+3 A[20,20]=4
            -A[0,10] -A[20,20] A[0,20]=1+2+3+4+5""",
        ),
        (  # late by itself, but saved by a session that it reaches
            0,
            "A:10:1 A:14:2 B:18:t A:9:3 A:4:4 A:12:5",
            """A[10,10]=1 -A[10,10] A[10,14]=1+2 B[18,18]=t -A[10,14] A[9,14]=1+2+3
            -A[9,14] A[4,14]=1+2+3+4 -A[4,14] A[4,14]=1+2+3+4+5""",
        ),
        (0, "A:10:1 A:10:2", "A[10,10]=1 A[10,10]=1+2"),  # the same window: nothing to retract
    ],
)
def test_changes_are_those_of_kafka_streams_in_its_order(
    grace: int, trace: str, expected: str
) -> None:
    assert whole(sessions(grace=grace), golden(trace)) == said(expected)


def test_a_session_is_final_once_where_kafka_says_it_twice_or_loses_it() -> None:
    trace = golden("A:0:1 B:15:t A:0:2 B:16:t A:0:3 A:1:4")
    assert whole(sessions(grace=10, emit="final"), trace) == [
        ("result", "A", 0, 0, ["1", "2"]),
        ("late", "A", 0, "its session is closed"),
    ]
    state = sessions(grace=10).start()
    late = sessions(grace=10).step(state, trace, 0).outputs[-2]
    # The last record is within the gap of a closed session, and so starts its own.
    assert isinstance(late, Late)
    assert late.close_time == 1


def test_with_a_clock_of_its_own_no_key_closes_the_sessions_of_another() -> None:
    trace = golden("A:0:1 B:1000:t A:3:2 A:9:3 A:0:4")
    assert whole(sessions(stream_time="per_key", emit="final"), trace) == [
        ("result", "A", 0, 3, ["1", "2"]),
        ("late", "A", 0, "its session is closed"),
    ]
    assert whole(sessions(stream_time="global", emit="final"), trace) == [
        ("result", "A", 0, 0, ["1"]),
        ("late", "A", 3, "its session is closed"),
        ("late", "A", 9, "its session is closed"),
        ("late", "A", 0, "its session is closed"),
    ]


def test_partitions_have_clocks_of_their_own() -> None:
    trace = [record("A", 0, 1), record("B", 99, 2, partition=1), record("A", 5, 3)]
    assert ("result", "A", 0, 0, [1]) not in whole(sessions(), trace)


def test_a_record_without_a_key_is_skipped_before_the_clock_moves() -> None:
    trace = [record("A", 0, 1), record(None, 1000, 2, offset=7), record("A", 5, 3)]
    assert whole(sessions(emit="final"), trace) == [("skip", 7, "no key")]


def test_revisions_rise_with_each_change_and_go_on_where_sessions_merge() -> None:
    state = sessions(grace=100).start()
    outputs = sessions(grace=100).step(state, golden("A:0:1 A:10:2 A:11:3 A:5:4"), 0).outputs
    assert [(brief(each)[0], each[-1]) for each in outputs] == [
        ("update", 1),
        ("update", 1),
        ("retract", 1),
        ("update", 2),
        ("retract", 1),
        ("retract", 2),
        ("update", 3),
    ]


def test_a_quiet_key_is_closed_by_the_wall_clock_with_no_new_record() -> None:
    operator = sessions(stream_time="per_key", emit="final", close_after=ms(100))
    first, second = golden("A:0:1 A:3:2")
    state, outputs, deadline = operator.step(operator.start(), [first], 1000)
    assert (outputs, deadline) == ([], 1100)
    state, outputs, _ = operator.step(state, [second], 1050)
    assert outputs == []
    state, outputs, deadline = operator.step(state, [], 1149)
    assert (outputs, deadline) == ([], 1150)
    state, outputs, _ = operator.step(state, [], 1150)
    assert [brief(each) for each in outputs] == [("result", "A", 0, 3, ["1", "2"])]
    late, fresh = golden("A:3:3 A:4:4")
    state, outputs, _ = operator.step(state, [late, fresh], 1160)
    assert [brief(each) for each in outputs] == [("late", "A", 3, "its session is closed")]
    state, outputs, _ = operator.step(state, [], 1260)
    assert [brief(each) for each in outputs] == [("result", "A", 4, 4, ["4"])]


def test_the_wall_clock_closes_nothing_while_the_source_is_behind() -> None:
    operator = sessions(stream_time="per_key", emit="final", close_after=ms(100))
    one, other = golden("A:0:1 A:3:2")
    state, _, _ = operator.step(operator.start(), [one], 0, behind=True)
    state, outputs, _ = operator.step(state, [], 5000, behind=True)
    assert outputs == []
    state, outputs, deadline = operator.step(state, [other], 5001, behind=True)
    assert (outputs, deadline) == ([], 5101)
    _, outputs, _ = operator.step(state, [], 5101)
    assert [brief(each) for each in outputs] == [("result", "A", 0, 3, ["1", "2"])]


def test_keys_that_are_due_close_in_the_order_of_their_deadlines() -> None:
    operator = sessions(stream_time="per_key", emit="final", close_after=ms(100))
    found = run(operator, [(n, [record(k, 0, n)]) for n, k in enumerate("cab")] + [(999, [])])
    assert [key for _, key, *_ in found] == ["c", "a", "b"]


def test_a_key_that_was_quiet_for_long_is_forgotten() -> None:
    operator = sessions(stream_time="per_key", forget_after=ms(1000), close_after=ms(10))
    state, _, _ = operator.step(operator.start(), golden("A:0:1"), 0)
    state, _, deadline = operator.step(state, [], 10)
    assert (list(state.keys), deadline) == ([b"A"], 1000)
    state, _, deadline = operator.step(state, [], 1000)
    assert (state.keys, deadline) == ({}, None)


def test_a_shared_clock_keeps_nothing_of_a_key_that_has_nothing_open() -> None:
    operator = sessions(emit="final")
    state, _, _ = operator.step(operator.start(), golden("A:0:1 B:50:2 A:1:3"), 0)
    assert list(state.keys) == [(0, b"B")]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("count", [None, "x", 3], 3),
        ("sum", [1, 2.5, 3], 6.5),
        ("list", [1, None, "x"], [1, None, "x"]),
        ("first", [None, 2], None),
        ("last", [1, None], None),
        ("min", [3, 1, 2], 1),
        ("max", ["a", "c", "b"], "c"),
    ],
)
def test_aggregates_that_have_a_name(name: str, values: list[Any], expected: Any) -> None:
    trace = [record("A", n, value) for n, value in enumerate(values)]
    operator = sessions(aggregate=name)
    assert whole(operator, trace)[-1] == ("update", "A", 0, len(values) - 1, expected)


class Longest:
    """The user's own aggregate: the longest text, and its key."""

    @staticmethod
    def initializer() -> list[str]:
        return ["", ""]

    @staticmethod
    def aggregator(key: str, value: str, found: list[str]) -> list[str]:
        return [key, value] if len(value) > len(found[1]) else found

    @staticmethod
    def merger(_: str, one: list[str], other: list[str]) -> list[str]:
        return max(one, other, key=lambda each: len(each[1]))


class Unkeepable(Longest):
    @staticmethod
    def aggregator(*_: object) -> Any:
        return object()


def test_an_aggregate_of_the_users_own_has_three_functions() -> None:
    operator = sessions(grace=100, aggregate=f"{__name__}:Longest")
    found = whole(operator, golden("A:0:one A:10:three A:5:four"))
    assert found[-1] == ("update", "A", 0, 10, ["A", "three"])


def test_a_record_that_an_aggregate_fails_for_changes_nothing() -> None:
    trace = [record("A", 0, 1), record("A", 1, "x", offset=9), record("A", 2, 3)]
    found = whole(sessions(aggregate="sum"), trace)
    assert found[1] == ("error", 9, 'aggregate: TypeError: "x" is not a number')
    assert found[-1] == ("update", "A", 0, 2, 4)
    found = whole(sessions(aggregate=f"{__name__}:Unkeepable"), golden("A:0:x"))
    assert found[0][0] == "error"


class Own:
    """Adds to what there is as the value says, in place, and keeps it in odd forms."""

    @staticmethod
    def initializer() -> Any:
        return []

    @staticmethod
    def aggregator(_: str, value: str, found: Any) -> Any:
        found += [value]
        match value:
            case "boom":
                raise ValueError(value)
            case "deep":
                for _nr in range(300):
                    found = [found]
            case "number":
                return {7: 1, None: 2}
            case "tuple":
                return ("a", ("b",))
        return found

    @staticmethod
    def merger(_: str, one: Any, other: Any) -> Any:
        return one + other if one else other


def test_a_record_that_fails_after_its_aggregate_has_changed_leaves_the_session_as_it_was() -> (
    None
):
    found = whole(sessions(grace=100, aggregate=f"{__name__}:Own"), golden("A:0:a A:1:boom A:2:b"))
    assert found[1][0] == "error"
    assert found[-1] == ("update", "A", 0, 2, ["a", "b"])


@pytest.mark.parametrize(
    ("value", "kept"), [("number", {"7": 1, "null": 2}), ("tuple", ["a", ["b"]])]
)
def test_an_aggregate_is_what_json_makes_of_it(value: str, kept: object) -> None:
    assert load(f"{__name__}:Own").aggregator("A", value, []) == kept


def test_an_aggregate_that_nests_too_deeply_for_its_result_is_refused_with_its_record() -> None:
    found = whole(sessions(aggregate=f"{__name__}:Own"), golden("A:0:deep"))
    assert [each[0] for each in found] == ["error"]


@pytest.mark.parametrize("name", ["average", "nowhere:thing", f"{__name__}:ms"])
def test_an_aggregate_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(BadSettings, match=name.partition(":")[0]):
        load(name)


TRACES = st.lists(
    st.tuples(st.sampled_from("AB"), st.integers(0, 60)), min_size=1, max_size=25
).map(lambda found: [record(k, t, n, offset=n) for n, (k, t) in enumerate(found)])


@settings(max_examples=300)
@given(TRACES, st.integers(1, 6), st.integers(0, 12))
def test_where_kafka_streams_agrees_with_itself_the_results_are_its(
    trace: Sequence[Input], gap: int, grace: int
) -> None:
    ends = [*trace, record("Z", 10_000, "end")]
    suppressed, emitted = final_by_suppress(ends, gap, grace), final_by_emit(ends, gap, grace)
    counted = Counter(value for *_, values in suppressed for value in values)
    if sorted(suppressed) != sorted(emitted) or any(n > 1 for n in counted.values()):
        return  # it has contradictory or repeated results
    found = whole(sessions(gap, grace, emit="final"), ends)
    assert sorted(each[1:] for each in found if each[0] == "result") == sorted(suppressed)


@settings(max_examples=200)
@given(TRACES, st.integers(1, 6))
def test_changes_equal_kafka_streams_while_nothing_is_closed(
    trace: Sequence[Input], gap: int
) -> None:
    assert whole(sessions(gap, 1000), trace) == updates(trace, gap, 1000)


@settings(max_examples=200)
@given(TRACES, st.integers(1, 6), st.integers(0, 12), st.sampled_from(["per_key", "global"]))
def test_every_record_is_in_one_final_session_or_late(
    trace: Sequence[Input], gap: int, grace: int, clock: str
) -> None:
    operator = sessions(gap, grace, emit="final", stream_time=clock, close_after=ms(1))
    found = run(operator, [(0, trace), (10**9, [])])
    values = Counter(v for each in found if each[0] == "result" for v in each[4])
    late = sum(each[0] == "late" for each in found)
    assert set(values.values()) <= {1}
    assert len(values) + late == len(trace)
    for key in "AB":
        windows = sorted(each[2:4] for each in found if each[:2] == ("result", key))
        assert len(set(windows)) == len(windows)


@settings(max_examples=200)
@given(st.data(), TRACES, st.sampled_from(["per_key", "per_partition", "global"]))
def test_neither_batches_nor_restarts_change_what_is_said(
    data: st.DataObject, trace: Sequence[Input], clock: str
) -> None:
    operator = sessions(3, 4, stream_time=clock)
    parts = data.draw(cuts(trace))
    expected = whole(operator, trace)
    assert run(operator, [(0, part) for part in parts]) == expected
    assert run(operator, [(0, part) for part in parts], restart=True) == expected
    assert run(operator, [(0, [each]) for each in trace], restart=True) == expected


@settings(max_examples=100)
@given(TRACES, st.integers(1, 4))
def test_the_number_of_buckets_does_not_change_what_is_said(
    trace: Sequence[Input], buckets: int
) -> None:
    operator = sessions(3, 4, stream_time="per_key")
    found = []
    for bucket in range(buckets):
        found += whole(operator, [r for r in trace if (r.key or b"")[0] % buckets == bucket])
    assert sorted(found, key=repr) == sorted(whole(operator, trace), key=repr)


@settings(max_examples=100)
@given(TRACES, st.integers(1, 4))
def test_the_number_of_partitions_does_not_change_what_is_said(
    trace: Sequence[Input], partitions: int
) -> None:
    operator = sessions(3, 4, stream_time="per_key")
    # One partition after the other: the order between partitions is not defined.
    spread = sorted(in_partitions(trace, partitions), key=lambda each: each.partition)

    assert sorted(whole(operator, spread), key=repr) == sorted(whole(operator, trace), key=repr)


def test_with_no_setting_but_the_gap_a_key_that_never_comes_back_has_a_result() -> None:
    operator = Sessions(SessionsSettings(gap=ms(100), grace=ms(50)))
    found = run(operator, [(n, [record(str(n), n)]) for n in range(1, 4)] + [(151, []), (153, [])])
    assert [key for _, key, *_ in found] == ["1", "2", "3"]
    never = Sessions(SessionsSettings(gap=ms(100), close_after=None))
    assert run(never, [(1, [record("1", 1)]), (10**12, [])]) == []
