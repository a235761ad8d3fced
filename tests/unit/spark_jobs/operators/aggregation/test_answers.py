"""Any answer of a script is an output or an error, and the step goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from outbox.envelope import Record
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.scripts import helper
from spark_jobs.operators.step import Input, Output
from tests.unit.spark_jobs.operators.aggregation.steps import (
    COUNT,
    DSL,
    event,
    loaded,
    reasons,
    running,
    step,
    values,
)

EACH = {**COUNT, "count": 1}
NEST = """
def nest(n):
    x = []
    for i in range(n):
        x = [x]
    return x
"""
BY_SCRIPT = {"type": "dsl", "path": "key.star"}


def stepped(operator: Guarded, records: Sequence[Record], state: Any = None) -> list[Output]:
    inputs = [
        Input(each.key, each.timestamp, each, each.topic, 0, n, each.value)
        for n, each in enumerate(records)
    ]
    return operator.step(operator.start() if state is None else state, inputs, 1000).outputs


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    script = NEST + (
        "def aggregate(IN, Env):\n"
        "    kind, n = IN[0]['kind'], IN[0].get('n', 0)\n"
        "    if kind == 'cache':\n"
        "        return struct(OUT=1, cache={'x': nest(n)})\n"
        "    if kind == 'own cache':\n"
        "        Env.cache['x'] = nest(n)\n"
        "        return struct(OUT=1)\n"
        "    if kind == 'status':\n"
        "        return nest(n)\n"
        "    if kind == 'OUT':\n"
        "        return struct(OUT={'x': nest(n)})\n"
        "    if kind == 'number':\n"
        "        return struct(OUT=1 << n if n else float('inf'))\n"
        "    if kind == 'large':\n"
        "        return struct(OUT=[n] + ['x' * 1000000] * 15)\n"
        "    return struct(OUT=IN[0])\n"
    )
    folder = tmp_path_factory.mktemp("odd")
    config = step(trigger=EACH, dsl={"path": "a.star"}, stateFull=True, scriptMemory=128)
    return Guarded(loaded(folder, config, a=script))


@pytest.mark.parametrize("kind", ["cache", "own cache", "status", "OUT"])
@pytest.mark.parametrize("depth", [120, 250])
def test_what_nests_too_deeply_is_an_error_of_its_event(
    odd: Guarded, kind: str, depth: int
) -> None:
    said = stepped(odd, [event(kind=kind, n=depth), event(kind="plain")])
    assert "nests" in reasons(said)[0] or "recursion" in reasons(said)[0]
    assert values(said) == [{"kind": "plain"}]


def test_a_number_that_json_cannot_hold_is_an_error_of_its_event(odd: Guarded) -> None:
    said = stepped(odd, [event(kind="number", n=0), event(kind="plain")])
    assert "aggregate: " in reasons(said)[0]
    assert values(said) == [{"kind": "plain"}]


def test_an_integer_of_any_size_keeps_its_digits(odd: Guarded) -> None:
    said = stepped(odd, [event(kind="number", n=5000)])
    assert values(said) == [1 << 5000]


def test_answers_that_are_too_much_together_are_errors(odd: Guarded) -> None:
    said = stepped(odd, [*(event(kind="large", n=n) for n in range(20)), event(kind="plain")])
    found = reasons(said)
    assert found[:16] == ["count"] * 16
    assert found[-1] == "count"
    assert len(said) - len(values(said)) == sum("the answers of a batch" in each for each in found)
    assert values(said)[-1] == {"kind": "plain"}
    assert sum("the answers of a batch" in each for each in found) > 5
    assert values(stepped(odd, [event(kind="large", n=9)]))[0] == 9


def test_calls_that_end_their_process_again_and_again_do_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "_TRIES", 2)
    trigger = (
        "def trigger(IN, Env):\n"
        "    x, y = [1], [1]\n"
        "    for i in range(IN['n']):\n"
        "        x, y = [x, x], [y, y]\n"
        "    return 'fireAndPurge' if x == y else 'purge'\n"
    )
    config = step(trigger=DSL, scriptTimeout=100)
    operator = Guarded(loaded(tmp_path, config, trigger=trigger))
    sent = [event(n=n, key=str(n)) for n in (0, 40, 1, 41, 42, 2)]

    first, second = reasons(stepped(operator, sent)), reasons(stepped(operator, sent))

    assert first == second
    assert first[0] == first[2] == "script"
    assert "processor time" in first[1]
    assert "processor time" in first[3]
    assert all("2 calls of scripts have ended their process" in each for each in first[4:])
    assert reasons(stepped(operator, [event(n=2)])) == ["script"]


def test_keys_that_are_numbers_differ_however_large_they_are(tmp_path: Path) -> None:
    script = "def key(IN, Env):\n    return int(IN['n'])\n"
    operator = Guarded(loaded(tmp_path, step(key=BY_SCRIPT), key=script))
    large = 123_456_789_012_345_678_901_234_567_890
    found = operator.keys([event(n=str(large)), event(n=str(large + 1)), event(n="7")])
    assert found == [str(large).encode(), str(large + 1).encode(), b"7"]


def test_a_key_that_no_record_could_have_is_an_error(tmp_path: Path) -> None:
    script = "def key(IN, Env):\n    return 'x' * IN['n']\n"
    operator = Guarded(loaded(tmp_path, step(key=BY_SCRIPT), key=script))
    assert operator.keys([event(n=2_000_000), event(n=3)]) == [None, b"xxx"]
    assert "key must be shorter" in reasons(stepped(operator, [event(n=2_000_000)]))[0]


def test_a_target_key_that_no_record_could_have_is_an_error(tmp_path: Path) -> None:
    script = (
        "def aggregate(IN, Env):\n    return struct(OUT=1, HEADERS={'TargetKey': 'x' * 2000000})\n"
    )
    one = running(tmp_path, step(trigger=EACH, dsl={"path": "a.star"}), a=script)
    assert "TargetKey must be shorter" in reasons(one.at(0, event()))[0]


def test_a_script_may_call_its_own_things_what_it_likes(tmp_path: Path) -> None:
    script = "".join(f"{name} = 'own'\n" for name in ("json", "type", "str", "len"))
    script += (
        "def aggregate(IN, Env):\n    return struct(OUT=[json, type, Env.AggregationEventCount])\n"
    )
    one = running(tmp_path, step(trigger=EACH, dsl={"path": "a.star"}), a=script)
    assert values(one.at(0, event())) == ["own", "own", 1]


@pytest.mark.parametrize("cache", ["[]", "0", "''", "False", "None", "{}"])
def test_a_cache_is_the_same_behind_a_restart(tmp_path: Path, cache: str) -> None:
    trigger = (
        "def trigger(IN, Env):\n"
        "    if 'first' in IN:\n"
        f"        return struct(status='continue', cache={cache})\n"
        "    return 'fireAndPurge'\n"
    )
    aggregate = "def aggregate(IN, Env):\n    return struct(OUT=[type(Env.cache)])\n"
    config = step(trigger=DSL, dsl={"path": "a.star"})
    one = running(tmp_path, config, trigger=trigger, a=aggregate)
    one.at(0, event(first=1))  # its state is encoded and decoded
    (made,) = one.at(0, event())
    kinds = {"[]": "list", "0": "int", "''": "string", "False": "bool", "None": "NoneType"}
    assert getattr(made, "shown", None) == kinds.get(cache, "dict")
