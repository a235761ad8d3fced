"""No script holds a job up: a call that takes too long or too much is an error of its event."""

from pathlib import Path
from typing import Any

import pytest

from outbox.envelope import Record
from outbox.errors import BadSettings
from spark_jobs.operators.aggregation.guard import Guarded
from spark_jobs.operators.aggregation.scripts.helper import Helper, helper
from spark_jobs.operators.aggregation.scripts.scripts import Scripts
from spark_jobs.operators.encoding import decode, encode
from spark_jobs.operators.step import Input, Made, Output
from tests.unit.spark_jobs.operators.aggregation.steps import (
    DSL,
    SUMS,
    event,
    loaded,
    reasons,
    step,
    values,
)

TRIGGER = """
def trigger(IN, Env):
    kind, x = IN.get("kind"), IN.get("text", "ab")
    if kind == "loop":
        for i in range(1000000000):
            pass
    elif kind == "comprehension":
        return len([i for i in range(1000000000)])
    elif kind == "repeat":
        x = x * 4000000000
    elif kind == "double":
        for i in range(60):
            x = x + x
    elif kind == "square":
        n = 3
        for i in range(40):
            n = n * n
    elif kind == "twins":
        x = [x]
        for i in range(40):
            x = [x, x]
        return x
    elif kind == "compare":
        x, y = [x], [x]
        for i in range(40):
            x, y = [x, x], [y, y]
        return "fire" if x == y else "purge"
    elif kind == "deep":
        return trigger(IN, Env)
    return "fireAndPurge"
"""
KINDS = ("loop", "comprehension", "repeat", "double", "square", "twins", "compare", "deep")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    folder = tmp_path_factory.mktemp("guarded")
    config = step(trigger=DSL, dsl={"path": "a.star"}, scriptTimeout=200, scriptMemory=128)
    return Guarded(loaded(folder, config, trigger=TRIGGER, a=SUMS))


def _inputs(*records: Record) -> list[Input]:
    return [
        Input(each.key, each.timestamp, each, each.topic, 0, n, each.value)
        for n, each in enumerate(records)
    ]


def _stepped(operator: Guarded, state: Any, *records: Record) -> tuple[Any, list[Output]]:
    done = operator.step(state, _inputs(*records), 1000)
    return done.state, done.outputs


def test_what_takes_too_much_is_an_error_and_what_is_around_it_goes_on(guarded: Guarded) -> None:
    sent = [event(id=n, kind=kind) for n, kind in enumerate(KINDS)]
    state, said = _stepped(guarded, guarded.start(), event(id=100), *sent, event(id=101))

    assert values(said) == [{"ids": [100]}, {"ids": [101]}]
    failed = [each for each in reasons(said) if each != "script"]
    assert len(failed) == len(KINDS)
    # Which one comes first depends on the machine; on most, it is the count of instructions.
    assert "is there a loop without an end?" in failed[0] or "took more than" in failed[0]
    assert all(len(reason) < 300 for reason in failed)
    _, said = _stepped(guarded, state, event(id=102))
    assert values(said) == [{"ids": [102]}]


def test_a_step_that_ended_its_helper_says_the_same_when_it_is_run_again(
    guarded: Guarded,
) -> None:
    sent = [event(id=1), event(id=2, kind="compare"), event(id=3)]
    one, two = (_stepped(guarded, guarded.start(), *sent)[1] for _ in range(2))
    assert (
        reasons(one)
        == reasons(two)
        == [
            "script",
            "took more than 200 ms of processor time",
            "script",
        ]
    )


def test_a_state_survives_the_helper_that_knew_it(tmp_path: Path) -> None:
    script = (
        "def trigger(IN, Env):\n"
        "    x, y = [1], [1]\n"
        "    for i in range(IN['n']):\n"
        "        x, y = [x, x], [y, y]\n"
        "    return 'continue' if x == y and IN['n'] < 3 else 'fireAndPurge'\n"
    )
    config = step(trigger=DSL, dsl={"path": "a.star"}, scriptTimeout=200)
    operator = Guarded(loaded(tmp_path, config, trigger=script, a=SUMS))
    state, _ = _stepped(operator, operator.start(), event(id=1, n=0))
    state, said = _stepped(operator, state, event(id=2, n=40), event(id=3, n=1))
    assert reasons(said) == ["took more than 200 ms of processor time"]

    state = decode(operator, encode(operator, state))
    _, said = _stepped(operator, state, event(id=4, n=3))

    assert [each.shown for each in said if isinstance(each, Made)] == [{"ids": [1, 3, 4]}]
    assert len(state.keys) == 0  # the size of a state that was just read is not known yet


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("def triggr(IN, Env):\n    pass\n", "there is no `def trigger"),
        ("def trigger(IN, Env)\n    pass\n", "trigger.star"),
        ("load('x', 'y')\n", "trigger.star"),
        ("print(1)\ndef trigger(IN, Env):\n    pass\n", "`print` not found"),
        ("import os\n", "trigger.star"),
        ("x = open('/etc/passwd')\ndef trigger(IN, Env):\n    pass\n", "`open` not found"),
        ("def trigger():\n    while True:\n        pass\n", "trigger.star"),
    ],
)
def test_a_script_that_cannot_be_compiled_stops_the_start(
    tmp_path: Path, script: str, error: str
) -> None:
    with pytest.raises(BadSettings, match=error):
        Scripts(loaded(tmp_path, step(trigger=DSL), trigger=script))


def test_a_script_without_an_end_at_its_top_stops_the_start(tmp_path: Path) -> None:
    script = (
        "x = [i for i in range(1000000) for j in range(1000000) if j < 0]\n"
        "def trigger(IN, Env):\n    pass\n"
    )
    with pytest.raises(BadSettings, match="cannot be made ready"):  # its process ends
        Helper(loaded(tmp_path, step(trigger=DSL, scriptTimeout=300), trigger=script))


def test_a_worker_compiles_the_scripts_of_a_step_once(tmp_path: Path) -> None:
    settings = loaded(tmp_path, step(trigger=DSL), trigger="def trigger(IN, Env):\n    pass\n")
    assert helper(settings) is helper(settings)
    assert helper(settings).starts == 1


def test_a_helper_has_none_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hidden")
    settings = loaded(tmp_path, step(trigger=DSL), trigger="def trigger(IN, Env):\n    pass\n")
    found = Helper(settings)
    try:
        environment = Path(f"/proc/{found._process.pid}/environ").read_bytes().split(b"\0")
        names = {each.partition(b"=")[0] for each in environment if each}
        assert names <= {b"PYTHONPATH", b"RUST_BACKTRACE", b"LD_LIBRARY_PATH", b"PYTHONHOME"}
    finally:
        found.close()


def test_keys_are_found_many_at_a_time(tmp_path: Path) -> None:
    config = step(key={"type": "dsl", "path": "key.star"})
    settings = loaded(tmp_path, config, key="def key(IN, Env):\n    return IN['k']\n")
    found = Guarded(settings).keys([event(k="a"), event(b"no json"), event(k="b"), event(x=1)])
    assert found == [b"a", None, b"b", None]


def test_a_helper_says_what_is_wrong_with_a_script(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"trigger\.star: there is no `def trigger"):
        Helper(loaded(tmp_path, step(trigger=DSL), trigger="def triggr(IN, Env):\n    pass\n"))
