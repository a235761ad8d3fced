"""Read the repository's documents: their examples, tables and links."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric

from tests.support.waiting import patient

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r'\]\(([^)\s]+)(?: "[^"]*")?\)')
_CELL = re.compile(r"(?<!\\)\|")


class Block(NamedTuple):
    """A fenced block: its language, the file that it represents, and its text."""

    language: str
    name: str
    text: str


class Command(NamedTuple):
    """A command of a console block, and the output shown below it."""

    line: str
    output: str


def blocks(document: Path, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of `document`; with `language`, only those in that language."""
    found = [Block(m[1], m[2] or "", m[3]) for m in _FENCE.finditer(document.read_text())]
    return [block for block in found if language in {None, block.language}]


def commands(document: Path) -> Iterator[Command]:
    """Yield the commands of the console blocks of `document`, without their comments."""
    for block in blocks(document, "console"):
        yield from commands_of(block)


def commands_of(block: Block) -> Iterator[Command]:
    """Yield the commands of one console block, without their comments."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(re.sub(r" +# .*", "", line), output)


def printed_by(line: str, folder: Path) -> str:
    """Run the line of a command in `folder`, and return what it prints."""
    return subprocess.run(
        [shutil.which("bash") or "bash", "-c", line],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=patient(60),
    ).stdout


def table(document: Path, heading: str, *, number: int = 1) -> list[list[str]]:
    """Return the rows of a table (the `number`th) below `heading`, without its header."""
    section = re.split(rf"^#+ {re.escape(heading)}$", document.read_text(), flags=re.MULTILINE)[1]
    lines = re.split(r"^#", section, flags=re.MULTILINE)[0].splitlines()
    tables: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    rows = tables[number - 1]
    return [[cell.strip() for cell in _CELL.split(line)[1:-1]] for line in rows[2:]]


def links(document: Path) -> list[str]:
    """Return the links of `document`, outside its examples."""
    return _LINK.findall(_prose(document))


def anchors(document: Path) -> set[str]:
    """Return the anchors of the headings of `document`, as GitHub makes them."""
    return {_anchor(heading) for heading in _HEADING.findall(_prose(document))}


def code_spans(text: str) -> list[str]:
    """Return the text between backticks in `text`."""
    return re.findall(r"`([^`]+)`", text)


def _prose(document: Path) -> str:
    return _FENCE.sub("", document.read_text())


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def documented(module: Path) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of the classes in `module`."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                field.target.id: " ".join(ast.literal_eval(told.value).split())
                for field, told in pairwise(node.body)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(told, ast.Expr)
                and isinstance(told.value, ast.Constant)
            }
    return found


def counted(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name
