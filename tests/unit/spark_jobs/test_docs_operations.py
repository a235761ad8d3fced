"""The examples in the runbook are the commands' output."""

import json
import re
import tomllib
from typing import Any

import pytest
from prometheus_client import Metric

from dovecote.cli.spark.state import show
from dovecote.cli.spark.status import table as shown_table
from dovecote.process.states import State
from outbox.envelope import Record
from spark_jobs.checkpoint.pins import PINNED, refusal
from spark_jobs.operators import contents, extent
from spark_jobs.operators.encoding import encode
from spark_jobs.operators.reading import reader
from spark_jobs.operators.table import operator
from spark_jobs.query.metrics import Metrics
from spark_jobs.query.settings import DedupSettings
from spark_jobs.query.status import Status
from spark_jobs.stateful.settings import PairingJob
from spark_jobs.stateful.state import BucketState
from tests.support.documents import ROOT, blocks, commands, table

DOCUMENT = ROOT / "docs/spark-operations.md"
NOW = 1_700_000_000_000


def _named(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _exposed() -> dict[str, str]:
    return {_named(each): each.documentation for each in Metrics("x").registry.collect()}


def _example(begins: str) -> str:
    (found,) = [each.output for each in commands(DOCUMENT) if each.line == begins]
    return found


def _buckets() -> list[BucketState]:
    """Return the state of the example: two calls, one of which has a past."""
    (text,) = [
        block.text
        for block in blocks(ROOT / "docs/spark-operators.md", "toml")
        if block.name == "calls.toml"
    ]
    settings = PairingJob.model_validate(tomllib.loads(text)).operator
    used, read = operator(settings), reader(settings)

    def record(topic: str, offset: int, user: str, time: int) -> Record:
        value = {"user1": user, "user2": "bob", "timestamp": time, "analytics": "clear"}
        return Record(topic, 0, offset, time, None, json.dumps(value).encode(), [])

    found = []
    for bucket, records in (
        (0, [record("analytics", 1, "ann", 9_000), record("analytics", 2, "ann", 250_000)]),
        (2, [record("analytics", 3, "eve", 9_000)]),
    ):
        inputs: list[Any] = [read(each, n) for n, each in enumerate(records)]
        state = used.step(used.start(), inputs, NOW).state
        found.append(
            BucketState(
                bucket=bucket,
                keys=extent.keys(state),
                open=extent.opened(state),
                size=len(encode(used, state)),
                entries=list(contents.entries(state, settings)),
            )
        )
    return found


def test_the_table_of_metrics_is_what_a_job_exposes() -> None:
    assert {row[0].strip("`"): row[1] for row in table(DOCUMENT, "Numbers")} == _exposed()


def test_alarms_are_about_metrics_that_there_are() -> None:
    named = re.findall(r"dovecote_spark_\w+", DOCUMENT.read_text())

    assert set(named) <= {*_exposed(), "dovecote_spark_state"}


def test_the_status_is_shown_as_it_is_printed() -> None:
    running = {"ready": True, "reason": "progressing", "batches": 1, "state": State.WORKING}
    orders = Status(query="orders", rows_per_s=4210.0, batch_seconds=0.61, **running)  # type: ignore[arg-type]  # fields of several types
    calls = Status(
        query="calls",
        rows_per_s=1934.0,
        lag_rows=1208,
        lag_seconds=0.7,
        batch_seconds=0.84,
        keys=20_411,
        open=6_120,
        state_bytes=9_310_114,
        **running,  # type: ignore[arg-type]  # as above
    )
    command = "dovecote spark status --config orders.toml --config calls.toml"

    assert _example(command) == f"{shown_table([orders, calls])}\n"


def test_the_state_is_shown_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command = "dovecote spark state --config calls.toml"
    assert show(_buckets(), None, as_json=False) == 0
    assert _example(command) == capsys.readouterr().out

    assert show(_buckets(), '["ann", "bob"]', as_json=False) == 0
    assert _example(f"""{command} --key '["ann","bob"]'""") == capsys.readouterr().out


def test_the_settings_of_the_example_are_the_defaults_but_for_the_port() -> None:
    (block,) = blocks(DOCUMENT, "toml")
    given = tomllib.loads(block.text)
    settings = {
        "kafka": {"bootstrap.servers": "x"},
        "source": {"topics": ["t"]},
        "operator": {"type": "exact"},
        "output": {"topic": "o", "retry_topic": "r", "dead_letter_topic": "d"},
        "spark": {"query": "q", "checkpoint": "c"},
    }

    explicit = DedupSettings.model_validate({**settings, **given})
    implicit = DedupSettings.model_validate(settings)

    assert explicit.stall_after == implicit.stall_after
    assert explicit.http.host == implicit.http.host


def test_the_messages_about_a_checkpoint_are_those_that_are_raised() -> None:
    heading = "A checkpoint goes on with what it was made with"
    shown = [row[0].replace("`", "") for row in table(DOCUMENT, heading)]
    made = {"job": "a", "spark.query": "a", "source.topics": ["a"], "state.buckets": 1}
    told = [(refusal("c", made, {name: "b"}) or "").replace("`", "") for name in made]

    for message, row in zip(told, shown, strict=False):
        pattern = ".*".join(
            map(re.escape, row.partition(",  and")[0].split(", and")[0].split("…"))
        )
        assert re.search(pattern, message), (row, message)
    assert PINNED in DOCUMENT.read_text()
