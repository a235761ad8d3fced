"""The README promises only what tests show, and names only existing commands."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks, commands, table

README = ROOT / "README.md"
DOCUMENT = ROOT / "docs/guarantees.md"
SECTIONS = [
    heading
    for heading in re.findall(r"^## (.+)$", DOCUMENT.read_text(), flags=re.MULTILINE)
    if not heading.startswith("Not promised")
]
GUARANTEES = table(README, "Guarantees")
# A link to a file of tests, whose title is the test's name; without a title its text is.
_TEST = re.compile(r'\[([^\]]+)\]\((?:\.\./)?(tests/[^)\s]+\.py)(?: "([^"]+)")?\)')


@pytest.mark.parametrize(
    "row",
    [*GUARANTEES, *(row for heading in SECTIONS for row in table(DOCUMENT, heading))],
    ids=lambda row: row[0][:60],
)
def test_each_guarantee_names_a_test_that_is_there(row: list[str]) -> None:
    named = cited(row)
    assert named, row
    assert _TEST.sub("", row[1]).strip(", ") == ""
    for words, file in named:
        assert f"test_{words.replace(' ', '_')}" in named_in(ROOT / file), words


def test_there_are_guarantees() -> None:
    assert len(GUARANTEES) >= 8


def test_the_readme_shows_nothing_that_the_page_of_guarantees_does_not() -> None:
    shown = {test for row in GUARANTEES for test in cited(row)}
    assert shown <= {
        test for heading in SECTIONS for row in table(DOCUMENT, heading) for test in cited(row)
    }


def test_the_two_commands_are_those_of_the_makefile_and_ci_runs_the_second() -> None:
    shown = [command.line for command in commands(README)]
    assert shown == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{line.removeprefix('make ')}: " in makefile for line in shown)
    assert "\nmake test" in (ROOT / ".ci/run").read_text()


def test_an_event_takes_ten_lines_to_write() -> None:
    (example,) = blocks(README, "python")
    assert len(example.text.splitlines()) <= 10


def cited(row: list[str]) -> list[tuple[str, str]]:
    """Return the tests that a guarantee names: their names in words, and their files."""
    return [(title or words, file) for words, file, title in _TEST.findall(row[1])]


def named_in(file: Path) -> set[str]:
    """Return the names of the tests in `file`."""
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
