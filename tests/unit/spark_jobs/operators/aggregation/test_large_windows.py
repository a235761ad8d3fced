"""A window with very many events: its batches stay small, and its end is never the job's."""

from pathlib import Path
from typing import Any

import msgpack
import pytest

from outbox.envelope import Record
from outbox.errors import BadSettings
from spark_jobs.operators import extent
from spark_jobs.operators.aggregation.chunks import TAIL, InMemory
from spark_jobs.operators.aggregation.guard import make
from spark_jobs.operators.aggregation.operator import Aggregation
from spark_jobs.operators.aggregation.scripts.scripts import Scripts
from spark_jobs.operators.aggregation.state import BadAggregationState, decoded, encoded
from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.step import Failed, Input, Made, Skipped
from tests.unit.spark_jobs.operators.aggregation.steps import (
    DSL,
    SUMS,
    Running,
    event,
    loaded,
    running,
    step,
    values,
)

MANY = {"type": "count", "count": 10**6, "timeout": 100}
SUM = "def fold(acc, IN, Env):\n    return (acc or 0) + IN['id']\n"
WHOLE = {"trigger": MANY, "dsl": {"path": "sums.star"}}


class Counted(InMemory):
    """Counts the bytes that are written."""

    written = 0

    def write(self, window: int, number: int, data: bytes) -> None:
        self.written += len(data)
        super().write(window, number, data)


def _filled(given: Running, count: int, key: str = "k") -> Counted:
    """Let `count` events come in steps of a hundred; return where their chunks are."""
    chunks = Counted()
    given.operator.keep_in(chunks)
    for start in range(0, count, 100):
        numbers = range(start, min(count, start + 100))
        given.at(1, *(event(id=each, key=key, pad="x" * 80) for each in numbers))
    return chunks


def _inputs(*records: Record) -> list[Input]:
    return [
        Input(each.key, each.timestamp, each, "orders", 0, number, each.value)
        for number, each in enumerate(records)
    ]


def test_a_step_stores_what_is_new_however_many_events_its_window_has(tmp_path: Path) -> None:
    sizes = {}
    for count in (200, 20_000):
        given = running(tmp_path, step(trigger=MANY))
        chunks = _filled(given, count)
        before = chunks.written
        for each in range(300):
            given.at(1, event(id=each, pad="x" * 80))
            assert len(encoded(given.state)) < TAIL + 1_000
        sizes[count] = chunks.written - before
    assert sizes[20_000] < 300 * 300
    assert sizes[20_000] < 2 * sizes[200]


def test_a_large_window_fires_with_all_events_in_their_order(tmp_path: Path) -> None:
    given = running(tmp_path, step(**WHOLE), sums=SUMS)
    chunks = _filled(given, 1_000)
    assert chunks.held
    (made,) = given.at(101)
    assert values([made]) == [{"ids": list(range(1_000))}]
    assert not chunks.held


def test_a_large_window_without_a_script_goes_on_unchanged(tmp_path: Path) -> None:
    given = running(tmp_path, step(trigger=MANY))
    _filled(given, 1_000)
    assert [each["id"] for each in values(given.at(101))] == list(range(1_000))


def test_windows_of_several_keys_keep_their_chunks_apart(tmp_path: Path) -> None:
    given = running(tmp_path, step(**WHOLE), sums=SUMS)
    chunks = _filled(given, 300, "a")
    for each in range(0, 300, 100):
        given.at(2, *(event(id=-n, key="b", pad="x" * 80) for n in range(each, each + 100)))
    assert values(given.at(101)) == [{"ids": list(range(300))}]
    assert values(given.at(102)) == [{"ids": [-n for n in range(300)]}]
    assert not chunks.held


def test_a_step_that_fails_leaves_the_chunks_of_a_window_that_it_has_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = running(tmp_path, step(**WHOLE), sums=SUMS)
    chunks = _filled(given, 1_000)
    before, held = encoded(given.state), dict(chunks.held)
    with monkeypatch.context() as patched:
        patched.setattr(given.operator, "_set_alarm", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            given.at(101)
    assert chunks.held == held
    given.state = decoded(given.operator, before)
    assert values(given.at(101)) == [{"ids": list(range(1_000))}]


@pytest.mark.parametrize("answer", ["purge", "fireAndPurge"])
def test_a_purged_window_leaves_no_chunks(tmp_path: Path, answer: str) -> None:
    script = f"def trigger(IN, Env):\n    return '{answer}' if IN['id'] == 999 else 'continue'\n"
    given = running(tmp_path, step(trigger=DSL), trigger=script)
    chunks = _filled(given, 1_000)
    assert not chunks.held


def test_what_comes_into_a_full_window_is_an_error_and_the_window_still_closes(
    tmp_path: Path,
) -> None:
    given = running(tmp_path, step(**WHOLE, maxWindowBytes=2_000), sums=SUMS)
    failed = given.at(1, *(event(id=each, pad="x" * 80) for each in range(20)))
    assert failed
    assert all(isinstance(each, Failed) for each in failed)
    assert "`maxWindowBytes` is 2000" in str(failed[0])
    assert not given.at(2, event(id=1, key="other"))
    (made, _) = values(given.at(200))
    assert len(made["ids"]) == 20 - len(failed)
    assert not given.at(201, event(id=7))


def test_a_fold_keeps_what_it_folds_and_no_events(tmp_path: Path) -> None:
    given = running(tmp_path, step(**WHOLE, maxWindowBytes=100), sums=SUM)
    chunks = _filled(given, 1_000)
    assert not chunks.held
    assert len(encoded(given.state)) < 200
    (made,) = given.at(101)
    assert isinstance(made, Made)
    assert (made.shown, made.events, made.origin) == (sum(range(1_000)), 1_000, ("orders", 0, 999))


def test_aggregate_beside_a_fold_gets_what_it_has_folded(tmp_path: Path) -> None:
    script = SUM + (
        "def aggregate(IN, Env):\n"
        "    return struct(OUT={'sum': IN, 'n': Env.AggregationEventCount,"
        " 'key': Env.AggregationKey})\n"
    )
    given = running(tmp_path, step(**WHOLE), sums=script)
    given.at(1, event(id=3), event(id=4))
    assert values(given.at(101)) == [{"sum": 7, "n": 2, "key": "k"}]


def test_a_fold_sees_its_event_and_shares_the_cache_with_the_trigger(tmp_path: Path) -> None:
    trigger = (
        "def trigger(IN, Env):\n    Env.cache['n'] = Env.cache.get('n', 0) + 1\n"
        "    return 'fireAndPurge' if Env.cache['n'] == 2 else 'continue'\n"
    )
    fold = (
        "def fold(acc, IN, Env):\n    acc = acc or []\n"
        "    acc.append([Env.SourceTopic, Env.SourceKey, Env.kafka.headers['h'],"
        " Env.AggregationKey, Env.AggregationEventCount, Env.cache['n']])\n    return acc\n"
    )
    given = running(
        tmp_path, step(trigger=DSL, dsl={"path": "sums.star"}), trigger=trigger, sums=fold
    )
    records = [event(id=each, headers=[("h", b"x")]) for each in range(2)]
    assert values(given.at(1, *records)) == [
        [["orders", "k", "x", "k", 1, 1], ["orders", "k", "x", "k", 2, 2]]
    ]


def test_an_event_that_a_fold_cannot_take_fails_alone(tmp_path: Path) -> None:
    given = running(tmp_path, step(**WHOLE), sums=SUM)
    given.at(1, event(id=3))
    (failed,) = given.at(1, event(other=1))
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("fold: ")
    (nothing,) = running(
        tmp_path, step(**WHOLE), sums="def fold(acc, IN, Env):\n    acc = IN\n"
    ).at(1, event(id=3))
    assert "fold must return the accumulator" in str(nothing)
    assert values(given.at(101)) == [3]


def test_an_accumulator_that_only_grows_is_refused(tmp_path: Path) -> None:
    fold = "def fold(acc, IN, Env):\n    return (acc or []) + ['x' * 400000]\n"
    given = running(tmp_path, step(**WHOLE), sums=fold)
    failed = given.at(1, *(event(id=each) for each in range(4)))
    assert ["more than 1048576" in str(each) for each in failed] == [True, True]


def test_a_fold_whose_result_fails_leaves_one_dead_letter_with_the_accumulator(
    tmp_path: Path,
) -> None:
    script = SUM + "def aggregate(IN, Env):\n    return struct(OUT=1 // 0)\n"
    given = running(tmp_path, step(**WHOLE), sums=script)
    given.at(1, event(id=3), event(id=4))
    (failed,) = given.at(101)
    assert isinstance(failed, Failed)
    assert (failed.record.value.value, failed.record.offset) == (b"7", 1)
    assert "2 events" in failed.reason


def test_a_fold_without_a_result_counts_its_events_as_declined(tmp_path: Path) -> None:
    script = SUM + "def aggregate(IN, Env):\n    return 'decline'\n"
    given = running(tmp_path, step(**WHOLE), sums=script)
    given.at(1, event(id=3), event(id=4))
    assert given.at(101) == [Skipped(b"k", "orders", 0, 1, "declined", 2)]


def test_a_fold_has_no_events_to_pass_through(tmp_path: Path) -> None:
    script = SUM + "def aggregate(IN, Env):\n    return 'passthrough'\n"
    given = running(tmp_path, step(**WHOLE), sums=script)
    given.at(1, event(id=3))
    assert "no events to pass through" in str(given.at(101))


def test_a_script_with_neither_function_says_both(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"aggregate\(IN, Env\).*nor a `def fold"):
        running(tmp_path, step(**WHOLE), sums="x = 1\n")


@pytest.mark.parametrize(("before", "after"), [(SUMS, SUM), (SUM, SUMS)])
def test_open_windows_do_not_change_between_fold_and_events(
    tmp_path: Path, before: str, after: str
) -> None:
    given = running(tmp_path, step(**WHOLE), sums=before)
    given.at(1, event(id=3))
    settings = loaded(tmp_path, step(**WHOLE), sums=after)
    with pytest.raises(BadAggregationState, match="another kind of script"):
        decoded(Aggregation(settings, Scripts(settings)), encoded(given.state))


@pytest.mark.parametrize("number", [1, 2])
def test_a_state_of_a_format_before_is_read_with_the_sizes_of_its_events(
    tmp_path: Path, number: int
) -> None:
    given = running(tmp_path, step(**WHOLE), sums=SUM)
    given.at(1, event(id=3), event(id=4, headers=[("a", b"b")]))
    now, name, body = msgpack.unpackb(encoded(given.state))
    assert now > number
    for _, _, _, window, *_ in body[1]:
        del window[6]  # the size
    before = msgpack.packb([number, name, body[: {1: 2, 2: 4}[number]]])

    assert decoded(given.operator, before).keys == given.state.keys


def test_the_process_of_scripts_reads_and_writes_its_chunks_through_its_parent(
    tmp_path: Path,
) -> None:
    operator: Any = make(loaded(tmp_path, step(**WHOLE), sums=SUMS))
    chunks = Counted()
    operator.keep_in(chunks)
    state = operator.start()
    records = _inputs(*(event(id=each, pad="x" * 80) for each in range(1_000)))
    state = operator.step(state, records, 1).state
    assert chunks.held
    assert extent.opened(state) == 1
    # As after a restart, when the process does not know the state.
    done = operator.step(decode(operator, encode(operator, state)), [], 101)
    assert values(done.outputs) == [{"ids": list(range(1_000))}]
    assert not chunks.held
    assert extent.opened(done.state) == 0


def test_windows_that_are_open_are_counted_without_scripts_too(tmp_path: Path) -> None:
    given = running(tmp_path, step(trigger=MANY))
    given.at(1, event(id=1), event(id=2), event(id=3, key="other"))
    assert (extent.keys(given.state), extent.opened(given.state)) == (2, 2)
    given.at(101)
    assert (extent.keys(given.state), extent.opened(given.state)) == (2, 0)


def test_a_call_over_more_events_may_take_more_instructions(tmp_path: Path) -> None:
    script = (
        "def aggregate(IN, Env):\n    total = 0\n"
        "    for event in IN:\n        for n in range(100):\n"
        "            total += event['id']\n    return struct(OUT=total)\n"
    )
    given = running(tmp_path, step(**WHOLE), sums=script)
    given.operator.keep_in(InMemory())
    given.at(1, *(event(id=1, pad="x" * 300) for _ in range(12_000)))
    assert values(given.at(101)) == [1_200_000]
