"""The pure parts of `make bench-costs`."""

import json
import os
from pathlib import Path

import pytest

from benchmarks.costing.disk import event, value
from benchmarks.costing.imports import bytecode_in
from benchmarks.costing.processes import used, voluntary


@pytest.mark.parametrize("number", [0, 7, 49_999, 1_234_567])
def test_a_value_is_json_of_200_bytes(number: int) -> None:
    found = value(number)
    assert len(found) == 200
    assert json.loads(found)["order"] == number
    assert value(number) != found, "a part of it is random"


def test_events_have_keys_that_come_again() -> None:
    assert event("orders", 3).key == event("orders", 5_003).key
    assert event("orders", 3).key != event("orders", 4).key


def test_voluntary_switches_are_read_from_a_status() -> None:
    text = "Name:\tdovecote\nvoluntary_ctxt_switches:\t417\nnonvoluntary_ctxt_switches:\t9\n"
    assert voluntary(text) == 417


def test_a_status_without_switches_is_refused() -> None:
    with pytest.raises(ValueError, match="needs Linux"):
        voluntary("Name:\tdovecote\nnonvoluntary_ctxt_switches:\t9\n")


def test_a_process_has_used_something() -> None:
    found = used(os.getpid())
    assert found.cpu > 0
    assert found.wakeups > 0
    assert found.memory > 1_000_000
    assert found.processes >= 1


def test_bytecode_is_kept_in_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environ = bytecode_in(tmp_path)
    assert environ["PYTHONPYCACHEPREFIX"] == str(tmp_path)
    assert "PYTHONDONTWRITEBYTECODE" not in environ
    assert environ["PATH"] == os.environ["PATH"]
