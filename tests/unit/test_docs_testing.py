"""The programs of the page on testing that need no server run as they stand there."""

from typing import Any

import pytest

from tests.support.documents import ROOT

PAGE = ROOT / "docs" / "testing.md"


def blocks() -> list[str]:
    found = PAGE.read_text(encoding="utf-8").split("```python\n")[1:]
    return [each.partition("```")[0] for each in found]


@pytest.mark.parametrize("nr", range(3))
def test_a_program_runs(nr: int) -> None:
    code = [each for each in blocks() if "from outbox.testing import recorded" in each][nr]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  # our own page


def test_every_program_is_python() -> None:
    assert len(blocks()) == 6
    for each in blocks():
        compile(each, str(PAGE), "exec")
