"""One result per call; the defects D1 to D7 of a join with a session window are absent."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.replay.trace import to_json
from outbox.envelope import Record
from spark_jobs.operators.lines import result
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.reading import many_reader, reader
from spark_jobs.operators.step import Failed, Input, Paired
from tests.support.pairs import GRACE, T, call, configured, pairing
from tests.unit.spark_jobs.operators.traces import (
    brief,
    golden,
    record,
    run,
    whole,
)


def test_d1_a_partner_inside_the_grace_is_taken_although_other_keys_went_on() -> None:
    trace = golden("k:0:a0:a z:100:x:a k:30:m0:m z:500:y:a k:900:a9:a")
    found = whole(pairing(), trace)
    assert found == [call("z", 100, "x", None), call("k", 0, "a0", "m0")]
    shared = whole(pairing(stream_time="global"), trace)
    assert shared[:2] == [call("k", 0, "a0", "m0"), call("z", 100, "x", None)]


def test_d2_no_one_sided_call_is_lost() -> None:
    trace = golden("k:0:a0:a k:30:m0:m j:40:a9:a z:200:a1:a z:600:a2:a z:900:a3:a")
    found = whole(pairing(stream_time="global"), trace)
    assert found == [
        call("k", 0, "a0", "m0"),
        call("j", 40, "a9", None),
        call("z", 200, "a1", None),
        call("z", 600, "a2", None),
    ]


@pytest.mark.parametrize("late", [239, 240, 241, 270, 271])
def test_d3_there_is_one_result_at_the_boundary(late: int) -> None:
    trace = golden(f"k:0:a0:a z:{late}:x:a k:30:m0:m z:2000:y:a k:2000:end:a")
    found = whole(pairing(stream_time="global"), trace)
    of_call = [each for each in found if each[0] == "result" and each[1] == "k"]
    expected = call("k", 0, "a0", "m0" if late <= T + GRACE else None)
    assert of_call == [expected]


def test_d4_no_key_closes_the_calls_of_another() -> None:
    trace = golden("k:0:a0:a z:100000:x:a k:30:m0:m")
    assert run(pairing(), [(0, trace), (T + GRACE, [])])[0] == call("k", 0, "a0", "m0")


def test_d5_a_replay_of_old_records_cuts_no_call_short() -> None:
    first, second = golden("k:0:a0:a k:30:m0:m")
    late = 10**9
    slow = [(late, [first]), (late + 10_000, [second])]
    found = run(pairing(), slow, behind=True)
    assert found == []
    quick = run(pairing(), [(late, [first]), (late + 1, [second]), (late + 240, [])])
    assert quick == [call("k", 0, "a0", "m0")]


def test_d6_keys_that_are_not_due_are_not_looked_at() -> None:
    operator = pairing()
    records = [record(f"k{n}", 0, n, topic="a", offset=n) for n in range(1000)]
    state, _, deadline = operator.step(operator.start(), records, 0)
    assert deadline == T + GRACE
    looked: list[object] = []
    found = state.keys

    class Watched(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            looked.append(key)
            return found.get(key, default)

    state.keys = Watched(found)
    operator.step(state, [], T + GRACE - 1)
    assert looked == []


def test_d7_a_time_that_is_missing_is_that_of_the_record() -> None:
    given_ = configured(key=["user1", "user2"], event_time="timestamp")
    read = reader(given_)
    values = [b'{"user1":1,"user2":2,"timestamp":null}', b'{"user1":1,"user2":2}']
    records = [
        read(Record(topic, 0, 0, 1_000 + n, None, value), None)
        for n, (topic, value) in enumerate(zip("am", values, strict=True))
    ]
    inputs = [each for each in records if isinstance(each, Input)]
    operator = Pairing(given_)
    state, _, _ = operator.step(operator.start(), inputs, 0)
    _, (found,), _ = operator.step(state, [], T + GRACE)
    assert isinstance(found, Paired)
    assert result(found, given_) == {
        "user1": 1,
        "user2": 2,
        "ts": 1_000,
        "a": {"user1": 1, "user2": 2, "timestamp": None},
        "m": {"user1": 1, "user2": 2},
    }


def test_the_distance_is_inclusive() -> None:
    for distance, calls_ in ((T, 1), (T + 1, 2)):
        trace = golden(f"k:0:a0:a k:{distance}:m0:m")
        assert len(run(pairing(), [(0, trace), (10**6, [])])) == calls_


def test_a_one_sided_call_closes_by_event_time_or_by_the_wall_clock() -> None:
    assert whole(pairing(), golden("k:0:a0:a k:240:x:a")) == []
    assert whole(pairing(), golden("k:0:a0:a k:241:x:a")) == [call("k", 0, "a0", None)]
    found = run(pairing(), [(7, golden("k:0:a0:a")), (7 + T + GRACE - 1, [])])
    assert found == []
    found = run(pairing(), [(7, golden("k:0:a0:a")), (7 + T + GRACE, [])])
    assert found == [call("k", 0, "a0", None)]
    off = pairing(close_after="off")
    assert run(off, [(7, golden("k:0:a0:a")), (10**7, [])]) == []


def test_what_comes_after_the_close_is_late_and_no_second_result() -> None:
    for emit in ("on_close", "on_pair"):
        operator = pairing(emit=emit)
        batches: list[tuple[int, Sequence[Input]]] = [
            (0, golden("k:0:a0:a")),
            (T + GRACE, []),
            (T + GRACE + 1, golden("k:30:m0:m k:0:a0:a k:20:b0:a")),
            (10**6, []),
        ]
        assert run(operator, batches) == [
            call("k", 0, "a0", None),
            ("late", "k", 30, "its call is closed"),
            ("skip", 1, "duplicate of 0"),
            ("late", "k", 20, "its call is closed"),
        ]


def test_a_record_between_on_time_and_late_is_decided_by_the_rule_of_closing() -> None:
    # stream time - its time is beyond the grace, but a call of its own would still be open
    trace = golden("k:300:x:a k:100:m0:m k:60:a0:a k:59:a1:a")
    found = run(pairing(), [(0, trace), (10**6, [])])
    assert found == [
        ("late", "k", 59, "too late"),
        call("k", 60, "a0", "m0"),
        call("k", 300, "x", None),
    ]


def test_a_redelivery_changes_nothing_even_after_its_call_was_said() -> None:
    again = golden("k:0:a0:a k:30:m0:m", offset=10)
    for emit in ("on_close", "on_pair"):
        operator = pairing(emit=emit)
        trace = [*golden("k:0:a0:a k:30:m0:m"), *again]
        found = run(operator, [(0, trace), (T + GRACE, []), (T + GRACE, again)])
        assert [each for each in found if each[0] == "result"] == [call("k", 0, "a0", "m0")]
        assert [each for each in found if each[0] == "skip"] == [
            ("skip", 10, "duplicate of 0"),
            ("skip", 11, "duplicate of 1"),
        ] * 2


def test_a_pair_is_said_at_once_if_that_is_asked_for() -> None:
    trace = golden("k:30:m0:m k:0:a0:a")
    assert whole(pairing(emit="on_pair"), trace) == [call("k", 0, "a0", "m0")]
    assert whole(pairing(), trace) == []


def test_the_nearest_of_the_other_side_is_taken_and_at_a_tie_the_lower_offset() -> None:
    near = golden("k:0:a0:a k:100:a1:a k:60:m0:m k:160:m1:m")
    found = whole(pairing(emit="on_pair"), near)
    assert found == [call("k", 60, "a1", "m0")]
    tie = golden("k:100:a0:a k:0:a1:a k:50:m0:m")
    assert whole(pairing(emit="on_pair"), tie) == [call("k", 50, "a0", "m0")]


@pytest.mark.parametrize(
    ("policy", "a"), [("first", "a0"), ("last", "a1"), ("list", ["a0", "a1"])]
)
@pytest.mark.parametrize("emit", ["on_close", "on_pair"])
def test_a_side_that_comes_twice_in_a_call(policy: str, a: Any, emit: str) -> None:
    operator = pairing(on_duplicate_side=policy, emit=emit)
    trace = golden("k:0:a0:a k:10:a1:a k:20:m0:m")
    found = run(operator, [(0, trace), (10**6, [])])
    time = 10 if policy == "last" else 0
    m = ["m0"] if policy == "list" else "m0"
    dropped = {"first": 1, "last": 0}
    skips = [("skip", dropped[policy], "duplicate side")] if policy in dropped else []
    assert found == [*skips, call("k", time, a, m)]


def test_keys_are_tuples_and_direction_matters() -> None:
    given_ = configured(key=["user1", "user2"])
    read = reader(given_)
    users = [("a-b", "c"), ("a", "b-c"), ("c", "a-b")]
    inputs = []
    for n, (one, other) in enumerate(users):
        value = f'{{"user1":"{one}","user2":"{other}"}}'.encode()
        found = read(Record("a" if n % 2 else "m", 0, n, 0, None, value), None)
        assert isinstance(found, Input)
        inputs.append(found)
    assert len(run(Pairing(given_), [(0, inputs), (10**6, [])])) == 3


@given(st.text(), st.text())
def test_a_key_of_fields_is_the_same_bytes_whatever_encodes_it(one: str, two: str) -> None:
    fields = [each.encode(errors="replace").decode() for each in (one, two)]
    value = json.dumps({"u": fields[0], "v": fields[1]}).encode()
    read = reader(configured(key=("u", "v")))(Record("a", 0, 0, 0, None, value), None)
    assert isinstance(read, Input)
    assert read.key == to_json(fields)


def test_keys_of_equal_numbers_and_of_text_that_looks_like_them_are_not_the_same() -> None:
    read = many_reader(configured(key=("u",)))
    given_ = ["1", '"1"', "1.0", "true", '"true"', "[1]", '"[1]"'] * 2
    values = [f'{{"u":{each}}}'.encode() for each in given_]
    found = read([Record("a", 0, 0, 0, None, value) for value in values], values, [])
    assert [each.key for each in found] == [f"[{each}]".encode() for each in given_]


@pytest.mark.parametrize("fields", ['"u":null,"v":"a"', '"u":"a","v":null', '"u":[1],"v":null'])
def test_a_key_of_which_one_field_is_null_is_none(fields: str) -> None:
    value = f"{{{fields}}}".encode()
    read = reader(configured(key=("u", "v")))(Record("a", 0, 0, 0, b"k", value), None)
    assert isinstance(read, Input)
    assert read.key is None


def test_a_record_without_key_or_side_is_skipped_and_one_that_cannot_be_read_failed() -> None:
    trace = [record(None, 0, 1, topic="a", offset=4), record("k", 0, 1, topic="x", offset=5)]
    assert whole(pairing(), trace) == [
        ("skip", 4, "no key"),
        ("skip", 5, "no side of a call"),
    ]
    read = reader(configured(key=["user"], event_time="at"))
    for value, says in (
        (b"{", "EOF"),
        (b"[]", 'no field "user"'),
        (b"{}", 'no field "user"'),
        (b'{"user":1,"at":"noon"}', "milliseconds"),
        (b'{"user":1,"at":9223372036854775808}', "milliseconds"),
        (b'{"user":1,"at":-9223372036854775809}', "milliseconds"),
    ):
        found = read(Record("a", 0, 0, 0, b"k", value), None)
        assert isinstance(found, Failed)
        assert says in found.reason
    null = read(Record("a", 0, 0, 0, b"k", b'{"user":null}'), None)
    assert isinstance(null, Input)
    assert null.key is None


def test_what_was_closed_is_forgotten_when_nothing_can_touch_it_any_more() -> None:
    operator = pairing()
    state, _, _ = operator.step(operator.start(), golden("k:0:a0:a k:241:x:a k:301:y:a"), 0)
    assert [each.low for each in state.keys[b"k"].closed] == []
    state, _, deadline = operator.step(state, [], 10**6)
    assert deadline == 24 * 3600 * 1000
    state, _, deadline = operator.step(state, [], 24 * 3600 * 1000)
    assert (state.keys, deadline) == ({}, None)


@pytest.mark.parametrize("emit", ["on_close", "on_pair"])
@pytest.mark.parametrize("stream_time", ["per_key", "global"])
def test_a_state_holds_digests_and_no_record_that_they_are_of(emit: str, stream_time: str) -> None:
    operator = pairing(emit=emit, stream_time=stream_time)
    trace = golden("k:0:a0:a k:30:m0:m j:0:a1:a k:40:m2:m k:290:a3:a")
    state, _, _ = operator.step(operator.start(), trace, 0)
    events = [
        event
        for held in state.keys.values()
        for event in (*held.events, *(e for c in (*held.open, *held.closed) for e in c.events()))
    ]
    assert len(events) > 1
    assert {type(event.digest) for event in events} == {bytes}
    _, outputs, _ = operator.step(state, trace[-1:], 1)
    assert [brief(each) for each in outputs] == [("skip", 4, "duplicate of 4")]
