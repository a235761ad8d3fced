"""The messages that the page on troubleshooting quotes are those of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.health import KINDS
from tests.support.documents import ROOT, code_spans

PAGE = ROOT / "docs/troubleshooting.md"
PACKAGES = ("outbox", "relay", "dedup", "spark_jobs", "dovecote")

# Commands, queries and settings stand between backticks, too, and are no messages.
OTHERS = re.compile(r"(dovecote|SELECT|DELETE|sum by) |\S+ = |handshake: false$")
# Kafka's client says this.
FOREIGN = {
    "Not enough in-sync replicas",
    "Invalid compressed data",
    "increase receive.message.max.bytes",
}


def quoted() -> list[str]:
    """Return the messages that the page quotes, with … for what differs between them."""
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in code_spans(text)]
    return [s for s in spans if " " in s and not OTHERS.match(s) and s not in FOREIGN]


@pytest.fixture(scope="module")
def told() -> set[str]:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    return {literal for file in files for literal in literals(file)}


def literals(module: Path) -> Iterator[str]:
    """Yield the strings of a module that are no docstrings, with … in place of values."""
    tree = ast.parse(module.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstrings:
            yield plain(re.sub(r"%(\.\d)?[sdrf]", "…", text(node)))


def text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr():
            return "".join(text(value) for value in node.values)
        case _:
            return "…"


def plain(message: str) -> str:
    """Return a message without markup, and with single spaces."""
    return re.sub(r"[`\s]+", " ", message).strip()


def is_told(quote: str, told: set[str]) -> bool:
    """Return whether one literal has all parts of the quote, in their order."""
    kind, colon, rest = quote.partition(": ")
    if colon and kind in KINDS.values():
        # The relay writes the kind of a failure before its message.
        return rest == "…" or is_told(rest, told)
    parts = [re.escape(part.strip()) for part in plain(quote).split("…")]
    pattern = re.compile(".*".join(part for part in parts if part))
    return any(pattern.search(literal) for literal in told)


@pytest.mark.parametrize("quote", quoted())
def test_every_message_that_is_quoted_is_one_of_the_code(quote: str, told: set[str]) -> None:
    assert is_told(quote, told)


def test_a_message_that_nothing_logs_is_found(told: set[str]) -> None:
    assert not is_told("… cannot be begun yet: …", told)
    assert is_told("… cannot be started yet: …", told)
    assert len(quoted()) > 50
