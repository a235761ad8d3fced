"""Aggregations from Kafka to Kafka: a step in the manual's form, and a flow of several."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from dovecote.devstack import Stack
from outbox.envelope import ERROR, FIRED, ID, WINDOW_EVENTS, Record
from spark_jobs.jobs import running
from spark_jobs.jobs.flow import load_flow
from spark_jobs.query.progress import BatchLine
from spark_jobs.query.session import STATE_STORE
from tests.spark.fix_spark import PARTITIONS, as_record, in_thread
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import consume, patient, until

COMMAND = Path(sys.executable).with_name("dovecote")
# Recent, because the broker deletes records by their timestamps.
T0 = time.time_ns() // 1_000_000 - 3_600_000
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order", "type": "string"}, {"name": "sum", "type": "double"}],
}
BIG = {**ORDER, "name": "Big", "fields": [*ORDER["fields"], {"name": "big", "type": "boolean"}]}
SCRIPTS = {
    "key.star": """
def key(IN, Env):
    return IN["tenant"] + "/" + IN["order"]
""",
    "trigger.star": """
def trigger(IN, Env):
    x, y = [1], [1]
    for i in range(IN.get("spin", 0)):
        x, y = [x, x], [y, y]
    return "fireAndPurge" if x == y and IN.get("last") else "continue"
""",
    "aggregate.star": """
def aggregate(IN, Env):
    total = 0.0
    for event in IN:
        total += event["sum"]
    out = {"order": Env.AggregationKey, "sum": total * Env.loadedVariables["rate"]}
    if total < 1000:
        return struct(OUT=out)
    return struct(OUT=out | {"big": True}, HEADERS={"kafka": {"schemaName": "Big"}})
""",
}
# The manual's form; topics and connections are the test's.
STEP = """
{
  name: "aggregation", type: "aggregation"
  environmentVariables { source: "file", path: "vars.json" }
  format: {
    input: "json"
    output: { type: "avro", schema: [ { source: "file", path: "schemas/big.avsc" }, { source: "classpath", path: "schemas/default.avsc", default: true } ] }
  }
  key { type: "dsl", path: "key.star" }               # or { type: "key" }
  trigger: { type: "dsl", path: "trigger.star", timeout: 3000 }
  dsl: { path: "aggregate.star" }
  stateFull: false
  destination: { name: "output", type: "destination", topic: "%(output)s", config: { type: "kafka", name: "output" } }
  error: { name: "deadletter", type: "destination", topic: "%(error)s", config: { type: "kafka", name: "output" } }
}
"""  # noqa: E501  # as the manual has it


@dataclass(frozen=True)
class Flowing:
    """A flow with a folder and a checkpoint of its own, in the one Spark."""

    kafka: str
    folder: Path
    spark: SparkSession
    lines: list[BatchLine] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "flow.json"

    def write(self, source: str, steps: list[object], **more: object) -> None:
        connection = {"bootstrap.servers": self.kafka}
        config = {"type": "kafka", "name": "input"}
        flow = {
            "source": {"name": "in", "type": "source", "topic": source, "config": config},
            "connections": {"input": connection, "output": connection},
            "steps": steps,
            "state": {"buckets": 3},
            "spark": {
                "query": f"test-{uuid4().hex[:12]}",
                "checkpoint": str(self.folder / "checkpoint"),
                "shuffle_partitions": PARTITIONS,
                "trigger": "100ms",
            },
        }
        self.file.write_text(json.dumps({**flow, **more}))

    def send(self, topic: str, *values: object, at: int = T0) -> None:
        producer = Producer({"bootstrap.servers": self.kafka})
        for number, value in enumerate(values):
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(topic, data, "k", partition=0, timestamp=at + number)
        assert producer.flush(patient(30)) == 0

    def read(self, topic: str) -> list[Record]:
        return [as_record(message) for message in consume(self.kafka, topic)]

    def running(self) -> AbstractContextManager[list[BaseException]]:
        _, jobs = load_flow(self.file, {})
        for name, value in STATE_STORE.items():
            self.spark.conf.set(name, value)
        return in_thread(
            lambda stop: running.run(jobs, self.spark, show=self.lines.append, stop=stop),
            within=patient(60),
        )

    def run_until(self, done: Callable[[], object], what: str) -> None:
        with self.running() as failed:
            until(lambda: failed or done(), within=90, what=what)


@pytest.fixture
def flow(stack: Stack, tmp_path: Path, spark: SparkSession) -> Flowing:
    (tmp_path / "scripts" / "schemas").mkdir(parents=True)
    (tmp_path / "schemas").mkdir()
    for name, text in SCRIPTS.items():
        (tmp_path / "scripts" / name).write_text(text)
    (tmp_path / "schemas" / "big.avsc").write_text(json.dumps(BIG))
    (tmp_path / "scripts" / "schemas" / "default.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "vars.json").write_text('{"rate": 0.5}')
    return Flowing(stack.kafka.bootstrap, tmp_path, spark)


def _decoded(record: Record, schema: dict[str, Any]) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(record.value or b""), schema, None)


def _have_read(flow: Flowing, rows: int) -> bool:
    return sum(line.rows for line in flow.lines) == rows


def _place(name: str, topic: str) -> dict[str, object]:
    config = {"type": "kafka", "name": "output"}
    return {"name": name, "type": "destination", "topic": topic, "config": config}


def test_a_step_of_the_manuals_shape_goes_from_kafka_to_kafka_with_avro_out(
    flow: Flowing, topic: MakeTopic
) -> None:
    source, output, error = topic(2), topic(2), topic()
    (flow.folder / "step.conf").write_text(STEP % {"output": output, "error": error})
    flow.write(source, ["step.conf"])
    orders = [{"tenant": "t", "order": str(n % 10), "sum": n, "last": n >= 20} for n in range(30)]
    flow.send(
        source,
        *orders,
        {"tenant": "t", "order": "big", "sum": 5000, "last": True},
        {"tenant": "t", "order": "stuck", "sum": 1, "spin": 64},
        b"{no json",
        {"tenant": "t"},
        {"tenant": "t", "order": "text", "sum": "x", "last": True},
    )
    flow.send(source, {"tenant": "t", "order": "quiet", "sum": 4}, at=time.time_ns() // 10**6)

    flow.run_until(
        lambda: len(flow.read(output)) >= 12 and len(flow.read(error)) >= 4, "all is told"
    )

    written = flow.read(output)
    big = [each for each in written if each.key == b"t/big"]
    rest = {each.key: _decoded(each, ORDER) for each in written if each not in big}
    assert [_decoded(each, BIG) for each in big] == [
        {"order": "t/big", "sum": 2500.0, "big": True}
    ]
    assert rest == {
        f"t/{n}".encode(): {"order": f"t/{n}", "sum": (3 * n + 30) / 2} for n in range(10)
    } | {b"t/quiet": {"order": "t/quiet", "sum": 2.0}}
    headers = {each.key: dict(each.headers) for each in written}
    assert headers[b"t/1"][FIRED] == b"script"
    assert headers[b"t/1"][WINDOW_EVENTS] == b"3"
    assert headers[b"t/quiet"][FIRED] in {b"gap", b"first_timeout"}
    assert len({each[ID] for each in headers.values()}) == len(written) == 12
    failed = {each.value: dict(each.headers)[ERROR] or b"" for each in flow.read(error)}
    assert len(failed) == 4
    assert b"column 2" in failed[b"{no json"]
    assert b'"order"' in failed[b'{"tenant": "t"}']
    stuck = next(reason for value, reason in failed.items() if value and b"stuck" in value)
    assert stuck == b"took more than 1000 ms of processor time"
    assert next(line for line in flow.lines if line.dead).dead <= 4


def test_steps_are_chained_by_their_names_and_branches_and_errors_are_steps_too(
    flow: Flowing, topic: MakeTopic
) -> None:
    source, sums, bigs, wrong = topic(), topic(), topic(), topic()
    late, last, told, dead = topic(), topic(), topic(), topic()
    (flow.folder / "scripts" / "branch.star").write_text("""
def aggregate(IN, Env):
    out = {"sum": IN[0]["sum"] + IN[1]["sum"]}
    return struct(OUT=out, HEADERS={"BranchName": "big"} if out["sum"] > 10 else {})
""")

    def step(name: str, count: int, destination: object, **more: object) -> dict[str, object]:
        trigger = {"type": "count", "count": count, "timeout": 3_600_000}
        common = {"name": name, "type": "aggregation", "trigger": trigger}
        return {**common, "destination": destination, "error": _place("dead", dead), **more}

    branches = {"big": _place("bigs", bigs)}
    sessions = {
        "name": "sums",
        "type": "sessions",
        "operator": {"gap": "60s", "emit": "update"},
        "destination": _place("last", last),
        "late": _place("late", late),
        "error": _place("lost", topic()),
    }
    first = step(
        "pairs",
        2,
        _place("sums", sums),
        dsl={"path": "branch.star"},
        branches=branches,
        error=_place("repair", wrong),
    )
    lines = {"input": {"type": "csv", "fieldNames": ["a"]}}
    repair = step("repair", 1, _place("told", told), format=lines)
    flow.write(source, [first, step("bigs", 1, _place("told", told)), sessions, repair])
    flow.send(source, {"sum": 1}, {"sum": 2}, {"sum": 9}, b"broken", {"sum": 9})

    def all_told() -> bool:
        # The output of a batch is visible before its line is shown.
        is_written = len(flow.read(told)) == 2 and flow.read(last) != []
        return is_written and len({line.query for line in flow.lines}) == 4

    flow.run_until(all_told, "all steps have told")

    assert {each.value for each in flow.read(told)} == {b'{"sum":18}', b"broken"}
    (update,) = flow.read(last)
    assert json.loads(update.value or b"")["value"] == 1
    assert flow.read(dead) == []
    assert {line.query.partition(".")[2] for line in flow.lines} == {
        "pairs", "bigs", "sums", "repair",
    }  # fmt: skip


def test_a_job_that_is_stopped_goes_on_with_its_windows(flow: Flowing, topic: MakeTopic) -> None:
    source, output = topic(), topic()
    trigger = {"type": "count", "count": 3, "timeout": 3_600_000}
    common = {"name": "three", "type": "aggregation", "trigger": trigger}
    places = {"destination": _place("out", output), "error": _place("dead", topic())}
    flow.write(source, [{**common, **places}])
    flow.send(source, {"n": 1}, {"n": 2})
    flow.run_until(lambda: sum(line.rows for line in flow.lines) == 2, "two are read")
    assert flow.read(output) == []
    flow.send(source, {"n": 3})

    flow.run_until(lambda: len(flow.read(output)) == 3, "the third has come")

    assert [json.loads(each.value or b"")["n"] for each in flow.read(output)] == [1, 2, 3]


def test_check_looks_at_scripts_schemas_topics_and_connections(
    flow: Flowing, topic: MakeTopic
) -> None:
    source, output, error = topic(), topic(), topic()
    (flow.folder / "step.conf").write_text(STEP % {"output": output, "error": error})
    flow.write(source, ["step.conf"])
    found = _check(flow)
    assert found.returncode == 0, found.stderr
    assert "ok    aggregation: scripts and schemas" in found.stdout

    (flow.folder / "scripts" / "key.star").write_text("def kee(IN, Env):\n    pass\n")
    (flow.folder / "step.conf").write_text(STEP % {"output": output, "error": "not-there"})
    found = _check(flow)
    assert found.returncode == 1
    assert "FAIL  aggregation: scripts and schemas: script key.star" in found.stdout
    assert "FAIL  aggregation: topics: no such topic: not-there" in found.stdout


def _check(flow: Flowing) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "spark", "aggregate", "--config", str(flow.file), "--check"]
    return subprocess.run(
        command, env=os.environ, capture_output=True, text=True, check=False, timeout=patient(120)
    )


def test_a_window_of_very_many_events_is_read_whole_when_it_closes_after_a_restart(
    flow: Flowing, topic: MakeTopic
) -> None:
    source, output, dead = topic(), topic(), topic()
    (flow.folder / "scripts" / "ids.star").write_text(
        "def aggregate(IN, Env):\n    return struct(OUT=[e['id'] for e in IN])\n"
    )
    step = {
        "name": "large",
        "type": "aggregation",
        "trigger": {"type": "count", "count": 1_001, "timeout": 3_600_000},
        "dsl": {"path": "ids.star"},
        "destination": _place("output", output),
        "error": _place("dead", dead),
        "maxLag": None,
    }
    flow.write(source, [step])
    for first in (0, 500):
        events = [{"id": n, "pad": "x" * 100} for n in range(first, first + 500)]
        flow.send(source, *events, at=T0 + first)
        flow.run_until(partial(_have_read, flow, first + 500), "all is read")
    assert (flow.lines[-1].open, flow.lines[-1].keys) == (1, 1)
    assert 0 < max(line.largest_bucket for line in flow.lines) < 20_000

    flow.send(source, {"id": 1_000}, at=T0 + 1_000)
    flow.run_until(lambda: len(flow.read(output)) == 1_001, "the window has closed")

    assert [json.loads(each.value or b"") for each in flow.read(output)] == list(range(1_001))
    assert flow.lines[-1].open == 0
    assert not flow.read(dead)
