"""A replay shows a handler's outputs as a Spark deduplication writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dedup.replay.replay import replay, start
from dedup.rules.policies.results import Done, Output
from outbox.event import Event

OUTPUTS: dict[str, Callable[[], Any]] = {
    "a number as key": lambda: (Output(1, key=5),),  # type: ignore[arg-type]  # wrong on purpose
    "no headers": lambda: (Output(1, headers=None),),  # type: ignore[arg-type]  # as above
    "a generator": lambda: (Output(number) for number in range(2)),
    "a buffer": lambda: (Output(bytearray(b"\xff")),),
}


def settle(event: Event) -> Done:
    return Done(OUTPUTS[str(event.value)]())


def shown(tmp_path: Path, value: str) -> list[dict[str, object]]:
    file = tmp_path / "job.toml"
    operator = f"[operator]\nhandler = '{__name__}:settle'\n"
    file.write_text(f"{operator}[kafka]\n'bootstrap.servers' = 'x:1'\n")
    line = {"topic": "orders", "partition": 0, "offset": 0, "timestamp": 1, "value": value}
    return [
        dict(each)
        for each in replay(start("first_match", file, environ={}), [json.dumps(line).encode()])
    ]


@pytest.mark.parametrize("value", ["a number as key", "no headers"])
def test_an_output_that_a_job_cannot_write_is_a_failure_of_its_handler(
    tmp_path: Path, value: str
) -> None:
    (found,) = shown(tmp_path, value)
    assert (found["kind"], found["goes_to"]) == ("error", "retry")


def test_outputs_that_can_be_read_only_once_are_all_shown(tmp_path: Path) -> None:
    assert [each["value"] for each in shown(tmp_path, "a generator")] == [0, 1]


def test_a_buffer_is_shown_as_the_bytes_that_a_job_writes(tmp_path: Path) -> None:
    (found,) = shown(tmp_path, "a buffer")
    assert found["value_base64"] == "/w=="
