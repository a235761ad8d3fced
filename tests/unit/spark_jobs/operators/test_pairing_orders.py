"""Pairs do not depend on order, batches, buckets and partitions."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.operators.step import Input, Paired
from tests.support.pairs import GRACE, T, call, ms, pairing
from tests.unit.spark_jobs.operators.traces import (
    brief,
    cuts,
    in_partitions,
    record,
    run,
)


def _calls(data: st.DataObject, keys: str = "kj") -> list[tuple[str, int, int | None, int | None]]:
    """Return calls at least 2T apart: key, number, and the times of their sides."""
    found = []
    for key in keys:
        start = data.draw(st.integers(0, 50))
        for number in range(data.draw(st.integers(0, 4))):
            sides = data.draw(st.sampled_from(["am", "a", "m"]))
            apart = data.draw(st.integers(-T + 10, T - 10))
            a, m = max(0, -apart), max(0, apart)
            found.append(
                (
                    key,
                    number,
                    start + a if "a" in sides else None,
                    start + m if "m" in sides else None,
                )
            )
            start += 2 * T + data.draw(st.integers(0, 500))
    return found


def _disordered(data: st.DataObject, calls_: list[Any]) -> list[Input]:
    """Return the events of `calls_`, none later than the grace, some of them twice."""
    events = [
        (time + data.draw(st.integers(0, GRACE)), key, time, f"{side}{number}", side)
        for key, number, a, m in calls_
        for side, time in (("a", a), ("m", m))
        if time is not None
        for _ in range(data.draw(st.integers(1, 2)))
    ]
    return [
        record(key, time, value, topic=side, offset=n)
        for n, (_, key, time, value, side) in enumerate(sorted(events))
    ]


def _expected(calls_: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(
        call(
            key,
            min(t for t in (a, m) if t is not None),
            None if a is None else f"a{number}",
            None if m is None else f"m{number}",
        )
        for key, number, a, m in calls_
    )


@settings(max_examples=300)
@given(st.data(), st.sampled_from(["on_close", "on_pair"]), st.sampled_from(["per_key", "global"]))
def test_there_is_one_result_per_call_whatever_the_order_and_however_often_it_is_delivered(
    data: st.DataObject, emit: str, clock: str
) -> None:
    calls_ = _calls(data)
    trace = _disordered(data, calls_)
    found = run(pairing(emit=emit, stream_time=clock), [(0, trace), (10**9, [])])
    assert Counter(each for each in found if each[0] == "result") == _expected(calls_)
    assert {each[0] for each in found} <= {"result", "skip"}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("kj"), st.integers(0, 700), st.integers(0, 2), st.sampled_from("am")
    ),
    max_size=20,
)


def _records(found: list[Any]) -> list[Input]:
    return [record(k, t, v, topic=s, offset=n) for n, (k, t, v, s) in enumerate(found)]


@settings(max_examples=200)
@given(st.data(), EVENTS, st.sampled_from(["first", "last", "list"]))
def test_on_close_does_not_depend_on_the_order_inside_the_grace(
    data: st.DataObject, events: list[Any], policy: str
) -> None:
    operator = pairing(on_duplicate_side=policy, grace=ms(1000))
    trace = _records(list(dict.fromkeys(events)))  # of copies, the first is the event
    shuffled = data.draw(st.permutations(trace))
    found, again = (
        [each for each in run(operator, [(0, t), (10**9, [])]) if each[0] == "result"]
        for t in (trace, shuffled)
    )
    assert sorted(found, key=repr) == sorted(again, key=repr)


@settings(max_examples=200)
@given(
    st.data(),
    EVENTS,
    st.sampled_from(["per_key", "per_partition", "global"]),
    st.sampled_from(["on_close", "on_pair"]),
)
def test_neither_batches_nor_restarts_change_what_is_said(
    data: st.DataObject, events: list[Any], clock: str, emit: str
) -> None:
    trace = _records(events)
    operator = pairing(stream_time=clock, emit=emit)
    parts = data.draw(cuts(trace))
    expected = run(operator, [(0, trace), (10**9, [])])
    assert run(operator, [*((0, part) for part in parts), (10**9, [])]) == expected
    ones = [*((0, [each]) for each in trace), (10**9, [])]
    assert run(operator, ones, restart=True) == expected


@settings(max_examples=100)
@given(EVENTS, st.integers(1, 4))
def test_the_number_of_buckets_does_not_change_what_is_said(
    events: list[Any], buckets: int
) -> None:
    trace = _records(events)
    found = []
    for bucket in range(buckets):
        mine = [r for r in trace if (r.key or b"")[0] % buckets == bucket]
        found += run(pairing(), [(0, mine), (10**9, [])])
    expected = run(pairing(), [(0, trace), (10**9, [])])
    assert sorted(found, key=repr) == sorted(expected, key=repr)


@settings(max_examples=200)
@given(EVENTS)
def test_every_event_is_used_once_or_accounted_for(events: list[Any]) -> None:
    trace = _records(events)
    operator = pairing()
    state, outputs, _ = operator.step(operator.start(), trace, 0)
    outputs += operator.step(state, [], 10**9).outputs
    used = [
        (topic, offset)
        for each in outputs
        if isinstance(each, Paired)
        for topic, offset in each.sides.items()
    ]
    others = [brief(each) for each in outputs if not isinstance(each, Paired)]
    assert len(set(used)) == len(used)
    assert len(used) + len(others) == len(trace)


@settings(max_examples=100)
@given(EVENTS, st.integers(1, 4))
def test_the_number_of_partitions_does_not_change_what_is_said(
    events: list[Any], partitions: int
) -> None:
    trace = _records(events)
    # One partition after the other: the order between partitions is not defined.
    spread = sorted(in_partitions(trace, partitions), key=lambda each: each.partition)

    found = run(pairing(), [(0, spread), (10**9, [])])

    expected = run(pairing(), [(0, trace), (10**9, [])])
    assert sorted(found, key=repr) == sorted(expected, key=repr)
