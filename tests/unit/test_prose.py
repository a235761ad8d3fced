"""No sentence of the docs, docstrings, comments or help breaks a rule that a program can check."""

from pathlib import Path

import pytest

from tests import prose


def test_every_sentence_is_plain_english() -> None:
    found = [str(fault) for path in prose.files([prose.ROOT]) for fault in prose.faults(path)]
    assert found == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.md", "What is parked waits.", "no actor"),
        ("a.md", "It works. Who requeues is fenced.", "no actor"),
        ("a.md", "What waits here?", None),
        ("a.md", "| `name` | Of each topic, all. |", "no actor"),
        ("a.md", "```\nWhat is code is code.\n```", None),
        ("a.md", " ".join(["word"] * 41) + ".", "41 words"),
        ("a.md", "It is seldom so.", "“seldom”"),
        ("a.py", '"""Whoever reads."""', "no actor"),
        ("a.py", "# Those that wait\n# come later.\n", "no actor"),
        ("a.py", "x = Option(help='Whatever it is.')", "no actor"),
        ("a.py", "# noqa: What is this\n", None),
        ("a.sql", "-- What is this?\n-- Of two.\n", "no actor"),
    ],
)
def test_a_sentence_that_breaks_a_rule_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, why: str | None
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert [fault.why for fault in prose.faults(tmp_path / name)] == ([why] if why else [])
