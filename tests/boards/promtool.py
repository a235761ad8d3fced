"""Write the tests of alerts that promtool runs, and run promtool."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.boards.series import BEGINS, HEALTHY, LASTS, Trouble
from tests.support.waiting import patient


def program(name: str) -> str:
    """Return the path of one of Prometheus's programs, or skip the test."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}: install Debian's package prometheus")
    return found


def promtool(*arguments: str | Path) -> str:
    """Return what promtool says; fail if it finds fault."""
    done = subprocess.run(
        [program("promtool"), *arguments],
        capture_output=True,
        text=True,
        timeout=patient(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


_LASTING = (BEGINS + LASTS - 10,)
_EVERY_MINUTE = range(1, BEGINS + LASTS - 10)


def file_of(rules: Sequence[Path], lasting: Iterable[Trouble], passing: Iterable[Trouble]) -> str:
    """Return a file for `promtool test rules`: of each trouble, which alerts fire."""
    tests = [
        *(_test(each, _LASTING) for each in lasting),
        *(_test(each, _EVERY_MINUTE) for each in passing),
    ]
    return yaml.safe_dump(
        {
            "rule_files": [str(file) for file in rules],
            "evaluation_interval": "1m",
            "tests": tests,
        },
        sort_keys=False,
        width=1_000,
    )


def _test(trouble: Trouble, minutes: Iterable[int]) -> dict[str, Any]:
    fires = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(trouble.fires)]
    return {
        "name": trouble.what,
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values}
            for series, values in {**HEALTHY, **trouble.series}.items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0',
                "eval_time": f"{minute}m",
                "exp_samples": fires,
            }
            for minute in minutes
        ],
    }
