"""`dovecote replay` as a person runs it: a process, its streams, its exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dovecote.cli.replay import Operator
from spark_jobs.operators.replay import OPERATORS
from tests.support.waiting import patient

RULES = """
def settle(event):
    print("settling", event.key)
    if event.value["amount"] == 13:
        raise LookupError("unlucky")
"""

CONFIG = """
[operator]
filter = "value.amount > 0"
handler = "rules:settle"
batch_size = 2
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the user's rules, and settings that name them."""
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "orders.toml").write_text(CONFIG)
    return tmp_path


def dovecote(
    place: Path, *arguments: str, trace: bytes = b"", environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [Path(sys.executable).with_name("dovecote"), "replay", *arguments],
        input=trace,
        cwd=place,
        env=environ,
        capture_output=True,
        check=False,
        timeout=patient(60),
    )


def with_path(place: Path) -> dict[str, str]:
    """Return an environment in which modules of `place` hide installed ones."""
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def write_step(place: Path) -> None:
    """Write `step.conf`, an aggregation that counts to two."""
    connection = 'config: { type: "kafka", name: "x" }'
    (place / "scripts").mkdir()
    (place / "scripts" / "sum.star").write_text(
        "def aggregate(IN, Env):\n    return struct(OUT={'n': len(IN)})\n"
    )
    (place / "step.conf").write_text(
        'name: "a", type: "aggregation", trigger { type: "count", count: 2, timeout: 100 }\n'
        'dsl { path: "sum.star" }\n'
        f'destination {{ name: "o", type: "destination", topic: "out", {connection} }}\n'
        f'error {{ name: "e", type: "destination", topic: "dead", {connection} }}\n'
    )


def line(offset: int, amount: object, key: str = "straße") -> bytes:
    record = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": offset}
    return json.dumps(record | {"key": key, "value": {"amount": amount}}).encode() + b"\n"


TRACE = line(0, 13) + line(1, 5) + line(2, 0)


def test_results_go_to_standard_output_one_a_line_and_status_is_0(place: Path) -> None:
    ran = dovecote(place, "first_match", "--config", "orders.toml", trace=TRACE)
    assert ran.returncode == 0
    assert ran.stdout.decode().splitlines() == [
        (
            '{"kind":"error","key":"straße","at":0,"topic":"orders","partition":0,"offset":0,'
            '"id":"orders/0/0","round":0,"reason":"LookupError: unlucky (rules.py:5 in settle)",'
            '"goes_to":"retry"}'
        ),
        (
            '{"kind":"result","key":"straße","at":0,"topic":"orders","partition":0,"offset":1,'
            '"id":"orders/0/1","round":0,"value":{"amount":5}}'
        ),
        (
            '{"kind":"skip","key":"straße","at":0,"topic":"orders","partition":0,"offset":2,'
            '"id":"orders/0/2","round":0,"reason":"filtered"}'
        ),
    ]


def test_what_a_handler_prints_is_no_result(place: Path) -> None:
    ran = dovecote(place, "first_match", "--config", "orders.toml", trace=TRACE)
    assert ran.stderr.decode().splitlines() == ["settling straße"] * 2


def test_the_same_trace_gives_the_same_bytes_in_any_environment(place: Path) -> None:
    runs = [
        dovecote(
            place, "exact", "--config", "orders.toml", trace=TRACE * 3, environ=environ
        ).stdout
        for environ in (
            {"PYTHONHASHSEED": "1", "PYTHONIOENCODING": "utf-8"},
            {"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONIOENCODING": "utf-8"},
        )
    ]
    assert runs[0] == runs[1] != b""


def test_a_bad_line_stops_the_replay_with_its_number_and_status_1(place: Path) -> None:
    trace = TRACE + b'{"topic": "orders"}\n' + TRACE
    ran = dovecote(place, "first_match", "--config", "orders.toml", trace=trace)
    assert ran.returncode == 1
    assert b"dovecote: line 4 of the trace: partition: is missing" in ran.stderr
    # The full batch before it is printed; nothing of the batch with the bad line is.
    assert [json.loads(told)["offset"] for told in ran.stdout.splitlines()] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pairs", "--config", "orders.toml"], "'pairs' is not one of 'first_match', 'exact'"),
        (["exact", "--config", "nowhere.toml"], "cannot read nowhere.toml"),
        (["exact", "--config", "latest.toml"], 'type is "latest" here, but exact was asked for'),
        (["exact"], "--config"),
        ([], "OPERATOR"),
    ],
)
def test_bad_usage_and_bad_settings_have_status_2_and_say_why(
    place: Path, arguments: list[str], says: str
) -> None:
    (place / "latest.toml").write_text('[operator]\ntype = "latest"\n')
    ran = dovecote(place, *arguments, trace=TRACE)
    assert ran.returncode == 2
    assert says in ran.stderr.decode()
    assert ran.stdout == b""


def test_check_reads_the_settings_and_no_trace(place: Path) -> None:
    ran = dovecote(place, "latest", "--config", "orders.toml", "--check", trace=b"not a trace")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_help_shows_an_example(place: Path) -> None:
    shown = " ".join(dovecote(place, "--help").stdout.decode().split())
    assert "dovecote replay first_match --config orders.toml < records.jsonl" in shown


def test_an_aggregation_is_replayed_from_the_file_of_its_step(tmp_path: Path) -> None:
    write_step(tmp_path)
    records = b"".join(line(n, n, "k") for n in range(3))
    done = dovecote(tmp_path, "aggregation", "--config", "step.conf", trace=records)
    assert done.returncode == 0, done.stderr
    said = [json.loads(each) for each in done.stdout.splitlines()]
    assert [(each["fired"], each["value"]) for each in said] == [
        ("count", {"n": 2}),
        ("end_of_input", {"n": 1}),
    ]


def test_without_the_packages_of_spark_it_says_how_to_get_them(place: Path) -> None:
    write_step(place)
    (place / "orjson.py").write_text("raise ModuleNotFoundError(name='orjson')")

    done = dovecote(place, "aggregation", "--config", "step.conf", environ=with_path(place))

    assert done.returncode == 2
    said = b"replay aggregation needs orjson: pip install 'dovecote[spark]'"
    assert (said in done.stderr, b"Traceback" in done.stderr) == (True, False)


@pytest.mark.parametrize("operator", ["first_match", "exact", "latest"])
def test_a_policy_is_replayed_without_the_packages_of_spark(place: Path, operator: str) -> None:
    for name in ("msgpack", "orjson", "pyarrow", "pyspark", "lxml", "fastavro"):
        (place / f"{name}.py").write_text(f"raise ModuleNotFoundError(name='{name}')")
    environ = with_path(place)

    done = dovecote(place, operator, "--config", "orders.toml", trace=TRACE, environ=environ)

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr


def test_every_operator_can_be_asked_for() -> None:
    assert {*Operator} == {*OPERATORS}
