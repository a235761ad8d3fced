"""A stored state is restored by this version and by the next."""

from datetime import timedelta
from typing import Any

import msgpack
import pytest

from outbox.envelope import Record
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.encoding import FORMAT, IN_PARTS, BadState, decode, encode
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.operators.step import Operator, Released
from tests.unit.spark_jobs.operators.traces import brief, golden, record

MS = timedelta(milliseconds=1)


def sessions(**more: Any) -> Sessions:
    table = {"gap": 5 * MS, "aggregate": "list", "close_after": 100 * MS, **more}
    return Sessions(SessionsSettings(**table))


def pairing(**more: Any) -> Pairing:
    sides = {"a": {"topic": "a"}, "m": {"topic": "m"}}
    return Pairing(PairingSettings.model_validate({"within": 60 * MS, "sides": sides, **more}))


# Written by format 1: the state of one key, or of one record.
FORMAT_1: list[tuple[Operator[Any], list[Any], tuple[Any, ...]]] = [
    (
        sessions(),
        [1, "sessions", [[], [[b"A", 3, 7, -(2**62), [[0, 3, ["x", "y"], 2]]]]]],
        ("result", "A", 0, 3, ["x", "y"]),
    ),
    (
        pairing(),
        [
            1,
            "pairing",
            [
                [],
                [[b"k", 9, 7, [[9, 9, [[[9, "a", 0, 4, 0, 7, b"12345678", "a0"]], []], []]], []]],
            ],
        ],
        ("result", "k", 9, "a0", None),
    ),
    (
        Delay(DelaySettings()),
        [1, "delay", [[[50, 3, ["t", 0, 9, 1, b"k", b"v", [["h", b"x"]]]]]]],
        ("released", Record("t", 0, 9, 1, b"k", b"v", [("h", b"x")])),
    ),
]


@pytest.mark.parametrize(("operator", "kept", "expected"), FORMAT_1)
def test_a_state_of_the_previous_format_goes_on(
    operator: Operator[Any], kept: list[Any], expected: tuple[Any, ...]
) -> None:
    state = decode(operator, msgpack.packb(kept))
    assert decode(operator, encode(operator, state)) is not None
    (found,) = operator.step(state, [], 10_000).outputs
    assert brief(found) == expected


def test_delayed_records_keep_their_order_over_an_upgrade() -> None:
    operator, kept, _ = FORMAT_1[2]
    state = decode(operator, msgpack.packb(kept))
    again = record(None, 50, "later")
    outputs = operator.step(state, [again], 50).outputs
    assert [type(each) for each in outputs] == [Released, Released]
    assert outputs[1][0] == "later"


def test_a_state_of_another_format_or_operator_is_refused() -> None:
    operator = sessions()
    kept = encode(operator, operator.start())
    assert msgpack.unpackb(kept)[0] == FORMAT
    with pytest.raises(BadState, match="state is of sessions, not of pairing"):
        decode(pairing(), kept)
    with pytest.raises(BadState, match=f"has format {IN_PARTS + 1}.* the newer one"):
        decode(operator, msgpack.packb([IN_PARTS + 1, "sessions", []]))
    with pytest.raises(BadState, match="not a state"):
        decode(operator, b"\xc1")


def test_calls_go_on_if_they_are_to_be_said_at_another_moment() -> None:
    before, after = pairing(emit="on_pair", close_after="off"), pairing(close_after="off")
    state, said, _ = before.step(before.start(), golden("k:0:a0:a k:5:a1:a j:9:m9:m"), 0)
    assert said == []
    state = decode(after, encode(before, state))
    found = after.step(state, golden("k:10:m0:m k:900:x:a j:900:x:a"), 1).outputs
    assert [brief(each)[:2] for each in found] == [("skip", 1), ("result", "k"), ("result", "j")]
    state, said, _ = after.step(after.start(), golden("k:0:a0:a k:5:a1:a j:9:m9:m"), 0)
    state = decode(before, encode(after, state))
    found = before.step(state, golden("k:10:m0:m j:11:a9:a"), 1).outputs
    assert [brief(each)[:2] for each in found] == [("result", "k"), ("result", "j")]


def test_any_json_can_be_kept() -> None:
    operator = sessions()
    value = {"n": 2**80, "m": [-(2**70), 1.5, None, True, "é"], "deep": [[{}]]}
    state, _, _ = operator.step(operator.start(), [record("A", 0, value)], 0)
    state = decode(operator, encode(operator, state))
    (found,) = operator.step(state, [], 100).outputs
    assert brief(found) == ("result", "A", 0, 0, [value])


def test_nothing_is_kept_that_can_be_computed() -> None:
    operator = sessions(stream_time="global", emit="final")
    state, _, deadline = operator.step(operator.start(), golden("A:0:1 B:3:2 A:1:3"), 5)
    again = decode(operator, encode(operator, state))
    assert operator.step(again, [], 5).deadline == deadline
    one = operator.step(state, golden("C:50:x"), 6).outputs
    assert operator.step(again, golden("C:50:x"), 6).outputs == one
