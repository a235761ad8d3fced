"""DESIGN.md names the folders that are there, and each folder says its duty."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import ROOT

DESIGN = ROOT / "DESIGN.md"
MARKER = "<!-- folders -->"

MOST_LINES = 150


def packages() -> list[str]:
    """
    Return the folders of the product's packages, with all folders in them that hold code.

    The shop is a project of its own.
    """
    found = {
        folder
        for top in ROOT.glob("*/__init__.py")
        for module in top.parent.rglob("*.py")
        for folder in module.relative_to(ROOT).parents
        if folder != Path()
    }
    return sorted(
        str(folder)
        for folder in found
        if folder.parts[0] != "tests" and folder.parts[:2] != ("examples", "shop")
    )


def tree() -> Iterator[tuple[str, str]]:
    """Yield the folders of DESIGN's tree with their duties."""
    _, shown, _ = DESIGN.read_text().split(MARKER)
    path: list[str] = []
    for line in shown.strip().strip("`").splitlines():
        if match := re.fullmatch(r"((?:  )*)(\w+)/ +(\S.*)", line):
            indent, name, duty = match.groups()
            path[len(indent) // 2 :] = [name]
            yield "/".join(path), duty
        else:
            assert not line.strip(), line


def test_the_tree_of_design_is_the_folders() -> None:
    assert sorted(folder for folder, _ in tree()) == packages()


@pytest.mark.parametrize("folder", packages())
def test_every_folder_says_its_duty_in_one_sentence(folder: str) -> None:
    module = ROOT / folder / "__init__.py"
    assert module.exists(), f"{folder} has no __init__.py"
    summary = (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n\n")[0]
    assert re.fullmatch(r"[A-Z`](?:[^.]|\.(?=\S))+\.", summary), summary


def test_design_can_be_read_at_a_sitting() -> None:
    assert len(DESIGN.read_text().splitlines()) <= MOST_LINES
