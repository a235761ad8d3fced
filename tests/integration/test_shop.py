"""The shop's tests, types and contracts hold, as its user runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.fix_stack import Servers

SHOP = ROOT / "examples/shop"
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider")


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=SHOP,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MYPYPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_tests_pass(stack: Servers) -> None:
    ran = run(
        *PYTEST,
        DOVECOTE_TEST_DSN=stack.postgres.dsn,
        DOVECOTE_TEST_BOOTSTRAP=stack.kafka.bootstrap,
        PYTEST_ADDOPTS="",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_its_types_are_right(tmp_path: Path) -> None:
    ran = run("mypy", "--cache-dir", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("more", [("--current",), ("--json",)])
def test_its_contracts_are_those_that_are_committed(more: tuple[str, ...]) -> None:
    ran = run("dovecote", "contracts", "check", "--module", "shop.events", *more)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_quotes_its_tests() -> None:
    text = (SHOP / "tests/test_shop.py").read_text()
    page = (ROOT / "docs/shop.md").read_text()
    quoted = re.findall(r"(?ms)^```python\n(.*?)^```", page)
    assert len(quoted) == 2
    assert all(each in text for each in quoted)


def test_it_has_about_a_hundred_lines() -> None:
    lines = [
        line
        for path in SHOP.glob("shop/*.py")
        for line in path.read_text().splitlines()
        if line.strip()
    ]
    assert len(lines) <= 120
