"""`make proof`, a short one."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.waiting import patient


def proven(*arguments: str, within: float) -> dict[str, Any]:
    """Run a proof that ends well, and return its result."""
    done = subprocess.run(
        [sys.executable, "-m", "proof", *arguments],
        capture_output=True,
        text=True,
        timeout=patient(within),
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    line: dict[str, Any] = json.loads(done.stdout)
    return line


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_short_proof_meets_every_kind_of_trouble_and_finds_nothing_wrong(capture: str) -> None:
    line = proven(
        "--kills", "6", "--seconds", "300", "--pace", "0.03", "--capture", capture, within=250
    )
    assert (line["lost"], line["duplicated"], line["out_of_order"]) == (0, 0, 0)
    assert line["events"] > 1_000
    assert min(line[name] for name in ("kills", "restarts", "pauses", "stalls", "takeovers")) > 1


def test_a_short_proof_with_three_brokers_and_a_standby_finds_nothing_wrong() -> None:
    kinds = ["kill", "broker without peers", "crash of Kafka", "promotion", "woken command"]
    chosen = [argument for kind in kinds for argument in ("--only", kind)]
    line = proven("--brokers", "3", "--seconds", "45", "--pace", "0.03", *chosen, within=280)
    assert (line["lost"], line["duplicated"], line["out_of_order"]) == (0, 0, 0)
    assert line["events"] > 1_000
    assert min(line[name] for name in ("kills", "isolations", "takeovers")) > 0


def test_a_short_storm_of_consumers_loses_doubles_and_reorders_no_effect() -> None:
    line = proven("--consumers", "--seconds", "15", within=250)
    assert (line["lost"], line["surplus"], line["out_of_order"]) == (0, 0, 0)
    assert line["effects_twice"] == 0
    assert line["repeated"] <= line["bound"]
    assert line["events"] > 500
    assert min(line[name] for name in ("kills", "pauses", "joins", "leaves", "compacted")) > 0
