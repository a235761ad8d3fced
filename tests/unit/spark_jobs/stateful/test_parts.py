"""A state in parts is the state that a whole one would be, whoever steps it."""

from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.envelope import Record
from spark_jobs.errors import StateDamaged
from spark_jobs.operators.delay import Delay
from spark_jobs.operators.encoding import FORMAT, IN_PARTS, BadState, decode, encode
from spark_jobs.operators.pairing.operator import Pairing
from spark_jobs.operators.sessions.operator import Sessions
from spark_jobs.operators.settings import DelaySettings, PairingSettings, SessionsSettings
from spark_jobs.operators.step import Input, Operator
from spark_jobs.stateful import parts
from spark_jobs.stateful.parts import Head
from tests.unit.spark_jobs.operators.traces import brief, record
from tests.unit.spark_jobs.stateful.stores import MOST, Workers

NOW = 1_700_000_000_000
KEYS = [f"k{number}" for number in range(12)]
SETTINGS = {"close_after": "2s", "forget_after": "3s"}


def sessions(**more: Any) -> Sessions:
    table = {"gap": "9ms", "aggregate": "list", **SETTINGS, **more}
    return Sessions(SessionsSettings.model_validate(table))


def pairing(**more: Any) -> Pairing:
    sides = {"a": {"topic": "a"}, "b": {"topic": "b"}}
    return Pairing(
        PairingSettings.model_validate({"within": "9ms", "sides": sides, **SETTINGS, **more})
    )


TIMES = ["per_key", "per_partition", "global"]
_SHARED = st.fixed_dictionaries({"stream_time": st.sampled_from(TIMES)})
_SPANS = st.sampled_from(["9ms", "40ms"])
OPERATORS = st.one_of(
    st.builds(lambda: Delay(DelaySettings())),
    st.builds(
        lambda more, gap, emit: sessions(gap=gap, emit=emit, **more),
        *(_SHARED, _SPANS, st.sampled_from(["final", "update"])),
    ),
    st.builds(
        lambda more, within, emit: pairing(within=within, emit=emit, **more),
        *(_SHARED, _SPANS, st.sampled_from(["on_close", "on_pair"])),
    ),
)
RECORDS = st.tuples(st.sampled_from(KEYS), st.integers(0, 20), st.sampled_from(["a", "b"]))
STEPS = st.lists(
    st.fixed_dictionaries(
        {
            "records": st.lists(RECORDS, max_size=4),
            "passed": st.sampled_from([-1_000, 0, 0, 10, 500, 1_500, 4_000]),
            "moved": st.integers(0, 20),
            "worker": st.integers(0, 2),
            "behind": st.booleans(),
            "forgets": st.booleans(),
            "fails": st.booleans(),
        }
    ),
    max_size=12,
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    """Store a state in parts as soon as it has some keys."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "SMALL", 200)
        patch.setattr(parts, "_MOST", 5)
        yield


def _delayed(due: int) -> Record:
    return Record("t", 0, due, 1, b"k", b"x" * 100, [("h", b"1")])


def _records(
    operator: Operator[Any], found: list[tuple[str, int, str]], clock: int, now: int
) -> list[Input]:
    if isinstance(operator, Delay):
        return [
            Input(key.encode(), due := now + 100 * time - 300, _delayed(due), topic, 0, time)
            for key, time, topic in found
        ]
    return [
        record(key, clock + time, 2**70 + place, topic=topic, partition=ord(key[1]) % 2)
        for place, (key, time, topic) in enumerate(found)
    ]


def _contents(operator: Operator[Any], data: bytes) -> Any:
    """Return what is stored, without the order in a heap."""
    if isinstance(operator, Delay):
        state = decode(operator, data)
        return state.taken, sorted(state.waiting)
    return data


def _fill(workers: Workers, keys: int = 40) -> None:
    """Give the bucket as many keys in one step."""
    workers.step([record(f"fill{number}", 50, "x" * 30, topic="a") for number in range(keys)], NOW)


@given(OPERATORS, st.integers(0, 12), STEPS)
def test_steps_of_any_workers_give_what_whole_states_give(
    operator: Operator[Any], first: int, steps: list[dict[str, Any]]
) -> None:
    whole = operator.start()
    workers = Workers(operator, workers=3)
    now, clock = NOW, 0
    beginning = {
        "records": [(key, 5, "a") for key in KEYS[:first]],
        "passed": 0,
        "moved": 0,
        "worker": 0,
        "behind": False,
        "forgets": False,
        "fails": False,
    }
    ends = [{**beginning, "records": [], "passed": 5_000} for _ in range(2)]
    for each in [beginning, *steps, *ends]:
        now += each["passed"]
        clock += each["moved"]
        records, worker = _records(operator, each["records"], clock, now), each["worker"]
        if each["forgets"]:
            workers.kept[worker] = parts.Kept()
        expected = operator.step(whole, records, now, behind=each["behind"])
        whole = decode(operator, encode(operator, expected.state))
        if each["fails"]:
            workers.step(records, now, worker=worker, behind=each["behind"], fails=True)
        outputs = workers.step(records, now, worker=worker, behind=each["behind"])
        assert outputs == expected.outputs
        assert workers.value is not None
        stored = workers.stored(0).whole(0, workers.value)
        told = encode(operator, workers.last)
        assert _contents(operator, stored) == _contents(operator, told)


@pytest.mark.parametrize("make", [sessions, pairing])
def test_what_a_shorter_grace_closes_is_stored(make: Callable[..., Operator[Any]]) -> None:
    first = [record(f"k{number}", 50, number, topic="a") for number in range(40)]
    workers = Workers(make(grace="90ms"))
    workers.step(first, NOW)
    workers.step([record("k0", 100, 1, topic="a")], NOW)
    base = workers.parts[0,]
    workers.go_on_with(make(grace="0ms"))
    (closed,) = workers.step([], NOW)
    assert brief(closed)[1] == "k0"
    assert workers.parts[0,] == base
    assert workers.value is not None
    assert workers.stored(0).whole(0, workers.value) == encode(workers.operator, workers.last)


def test_a_small_state_is_one_value_and_asks_for_no_parts() -> None:
    operator = sessions()
    workers = Workers(operator)
    workers.step([record("a", 0, 1)], NOW)
    workers.step([record("a", 1, 1)], NOW, worker=1)
    assert workers.value is not None
    assert msgpack.unpackb(workers.value)[0] == FORMAT
    assert workers.parts.calls == 0


def test_a_step_writes_what_it_has_changed_and_asks_for_one_part() -> None:
    workers = Workers(sessions())
    _fill(workers, 400)
    assert workers.written > 20_000
    before = workers.parts.calls
    workers.step([record("fill3", 55, "x")], NOW)
    assert workers.written < 300
    assert workers.parts.calls == before + 1
    assert len(workers.parts) == 2


def test_a_worker_reads_only_what_another_one_has_stored_since() -> None:
    workers = Workers(sessions())
    _fill(workers, 400)
    for number in range(3):
        workers.step([record(f"fill{number}", 55, "x")], NOW, worker=1)
    before = workers.parts.calls
    workers.step([record("fill9", 55, "x")], NOW, worker=0)
    assert workers.parts.calls == before + 3 + 1  # three deltas read, one written


def test_a_batch_of_delayed_records_writes_those_that_come_and_names_those_that_go() -> None:
    workers = Workers(Delay(DelaySettings()))

    def waiting(due: int) -> Input:
        return Input(b"k", due, _delayed(due), "t", 0, 1)

    workers.step([waiting(NOW + number) for number in range(1, 401)], NOW)
    assert workers.written > 40_000
    released = workers.step([waiting(NOW + 900), waiting(NOW + 1)], NOW + 9)
    assert len(released) == 10
    assert workers.written < 400
    assert workers.codec.count(workers.state(1)) == 392


def test_deltas_are_gathered_in_a_new_base_when_they_are_many_or_large() -> None:
    workers = Workers(sessions())
    _fill(workers)
    found = []
    for number in range(20):
        workers.step([record(f"fill{number}", 55, "x")], NOW)
        found.append(len(workers.parts))
    assert max(found) == 6  # a base and the most deltas
    assert found.count(1) == 3
    _fill(workers)
    for _ in range(9):
        workers.step([record(f"fill{number}", 55, "x" * 9) for number in range(19)], NOW)
        sizes = [len(data) for (data,) in workers.parts.values()]
        assert sum(sizes[1:]) <= sizes[0]


def test_a_state_that_gets_small_is_one_value_again() -> None:
    workers = Workers(sessions())
    _fill(workers)
    assert workers.parts
    workers.step([], NOW + 60_000)
    workers.step([], NOW + 120_000)
    assert workers.value is not None
    assert msgpack.unpackb(workers.value)[0] == FORMAT
    assert not workers.parts


def test_the_size_of_the_whole_state_is_known_from_its_parts() -> None:
    operator = sessions()
    workers = Workers(operator)
    _fill(workers, 400)
    for number in range(5):
        records = [record(f"fill{number}", 55, "x"), record(f"new{number}", 55, "x" * 30)]
        workers.step(records, NOW)
        assert workers.value is not None
        head = Head.decode(workers.value)
        assert head is not None
        whole = workers.stored(1).whole(0, workers.value)
        assert abs(head.size - len(whole)) < len(whole) // 50
        assert head.keys == 401 + number


def test_a_size_over_the_limit_is_measured() -> None:
    operator = sessions()
    workers = Workers(operator)
    _fill(workers, 400)
    state = operator.step(workers.state(0), [record("fill1", 55, "x")], NOW).state
    stored = workers.stored(0)
    estimated = stored.writing(state, workers.value, MOST)
    assert estimated.number == 1
    measured = stored.writing(state, workers.value, estimated.size - 1)
    assert (measured.number, measured.size) == (0, len(encode(operator, state)))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_missing_or_changed_part_is_named(number: int) -> None:
    workers = Workers(sessions())
    _fill(workers)
    for key in ("fill1", "fill2"):
        workers.step([record(key, 55, "x")], NOW)
    (data,) = workers.parts[number,]
    workers.parts[number,] = (data[:-1] + bytes([data[-1] ^ 1]),)
    place = f"part {number + 1} of 3 of the state of bucket 0"
    with pytest.raises(StateDamaged, match=f"{place} is not the one that was written: .*--adopt"):
        workers.state(1)
    del workers.parts[number,]
    with pytest.raises(StateDamaged, match=f"{place} is missing: .*Go on from a copy"):
        workers.state(1)
    # The worker that has stepped it needs none of the parts.
    assert workers.state(0) is not None


def test_a_list_of_parts_that_is_cut_is_damage() -> None:
    workers = Workers(sessions())
    _fill(workers)
    assert workers.value is not None
    workers.value = workers.value[:-3]
    with pytest.raises(StateDamaged, match="list of the state's parts cannot be read"):
        workers.state(1)


def test_a_state_of_the_format_before_goes_on() -> None:
    operator = sessions()
    first = [record(f"fill{number}", 50, "x" * 30) for number in range(40)]
    state = operator.step(operator.start(), first, NOW).state
    workers = Workers(operator)
    workers.value = encode(operator, state)
    assert msgpack.unpackb(workers.value)[0] == FORMAT
    workers.step([record("fill1", 55, "x")], NOW)
    assert workers.value is not None
    assert Head.decode(workers.value) is not None
    assert [*workers.parts] == [(0,)]
    assert len(workers.state(1).keys) == 40


def test_a_version_without_parts_says_which_one_it_needs() -> None:
    workers = Workers(sessions())
    _fill(workers)
    assert workers.value is not None
    number, name, _ = msgpack.unpackb(workers.value)
    assert (number, name) == (IN_PARTS, "sessions")  # an earlier version looks at these two


def test_changes_of_another_operator_are_refused() -> None:
    workers, other = Workers(sessions()), Workers(pairing())
    for each in (workers, other):
        _fill(each)
        each.step([record("fill1", 55, "x", topic="a")], NOW)
    (delta,) = other.parts[1,]
    with pytest.raises(BadState, match="the changes are of pairing, format 3, not of sessions, 3"):
        workers.codec.apply(workers.state(0), delta)


def test_a_worker_keeps_the_states_that_it_stepped_last() -> None:
    kept = parts.Kept()
    for bucket in range(65):
        kept.keep(bucket, b"", bucket)
    assert kept.take(0) is None
    assert kept.take(64) == (b"", 64)
    assert kept.take(64) is None
