"""
Count what is not plain English: `python -m tests.prose [file or folder …]`.

The rules are those of CONTRIBUTING: a sentence has an actor as its subject, holds one idea, and is
short. The lint counts the part of them that a program can see.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

HEADLESS = re.compile(r"(?:Who|What|Whoever|Whatever|Those|Of)\b(?!.*\?$)")
"""A sentence that begins so has no actor; a question may."""

FOREIGN = re.compile(r"\b(?:seldom|for else|in vain|or else|whosoever)\b", re.IGNORECASE)

MOST_WORDS = 40

_SKIPPED = {
    ".venv",
    ".venv-tools",
    ".git",
    "node_modules",
    ".mypy_cache",
    ".ruff_cache",
    "build",
    "dist",
    "site",
}
_SKIPPED |= {"old_schemas"}  # They stay as they were.
_SENTENCE = re.compile(r"(?<=[.:!?])(?:\*\*|\)|\")?\s+(?=[\"(*]*[A-Z`\[])|(?<=\.\*\*)\s+")
_MARKUP = re.compile(r"^[\s>*_\"(#-]+")
_QUOTED = re.compile(r"`[^`]+`|\[[^\]]+\]\([^)]*\btests/[^)]*\)")
"""Code, messages and the names of tests: each counts as one word."""


class Fault(NamedTuple):
    """A sentence to be written anew."""

    path: Path
    line: int
    why: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}: {self.sentence[:140]}"


def faults(path: Path) -> list[Fault]:
    """Return the sentences of one file that break a rule."""
    text = path.read_text(encoding="utf-8")
    parts = (
        _python(text)
        if path.suffix == ".py"
        else _sql(text)
        if path.suffix == ".sql"
        else _markdown(text)
    )
    return [
        Fault(path.relative_to(ROOT), line, why, sentence)
        for line, part in parts
        for sentence in _sentences(part)
        if (why := _fault(sentence))
    ]


def files(places: list[Path]) -> Iterator[Path]:
    """Yield the files with prose, in `places` and below."""
    for place in places:
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in found:
            if path.suffix in {".py", ".md", ".sql"} and not _SKIPPED & set(path.parts):
                yield path


def _fault(sentence: str) -> str | None:
    plain = _MARKUP.sub("", sentence)
    if HEADLESS.match(plain):
        return "no actor"
    plain = _QUOTED.sub("quoted", plain)
    if word := FOREIGN.search(plain):
        return f"“{word[0]}”"
    if (words := len(plain.split())) > MOST_WORDS:
        return f"{words} words"
    return None


def _sentences(part: str) -> list[str]:
    return [" ".join(one.split()) for one in _SENTENCE.split(part) if one.strip()]


def _python(text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings, texts of options, and comments whose lines belong together."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                yield from _paragraphs(said, node.lineno)
            case ast.keyword(arg="help", value=ast.Constant(value=str(said))):
                yield node.value.lineno, said
    comments = (
        (token.start[0], said)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and not (said := token.string.lstrip("# ")).startswith(("noqa", "type:", "!"))
    )
    yield from _together(comments)


def _together(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Join lines that follow each other without a gap."""
    block: list[str] = []
    first = last = 0
    for line, said in lines:
        if block and line != last + 1:
            yield first, " ".join(block)
            block = []
        first, last = first if block else line, line
        block.append(said)
    if block:
        yield first, " ".join(block)


def _sql(text: str) -> Iterator[tuple[int, str]]:
    return _together(
        (number, line.strip().lstrip("- "))
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip().startswith("--")
    )


def _markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, list items and cells of tables, but no code."""
    kept, fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            kept.append("")
        else:
            kept.append("" if fenced else line)
    yield from _paragraphs("\n".join(kept), 1)


def _paragraphs(text: str, first: int) -> Iterator[tuple[int, str]]:
    block: list[str] = []
    start = first
    for number, line in enumerate([*text.splitlines(), ""], first):
        said = line.strip()
        if not said or said.startswith(("|", "- ", "* ", "#", "1. ", "├", "└", "│")):
            if block:
                yield start, " ".join(block)
            block = []
        if said.startswith("|"):
            yield from ((number, cell) for cell in said.strip("|").split(" | "))
        elif said:
            start = start if block else number
            block.append(said)


def main() -> None:
    """Print each fault, and how many there are."""
    places = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT]
    found = [fault for path in files(places) for fault in faults(path)]
    for fault in found:
        sys.stdout.write(f"{fault}\n")
    sys.stderr.write(f"{len(found)} sentences to be written anew\n")


if __name__ == "__main__":
    main()
