"""Statements of an auditor: a change of any kind shows, and a kill leaves no false complaint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dovecote.audit.rules.statement import BEGINNING, first_broken, hash_of, sealed
from dovecote.audit.statements import append


def chain(count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(count):
        before = found[-1]["hash"] if found else BEGINNING
        found.append(sealed({"statement": number + 1, "findings": [{"key": "ä"}]}, before))
    return found


def lines(count: int = 4) -> list[str]:
    return [json.dumps(each) + "\n" for each in chain(count)]


def altered(given: list[str]) -> list[str]:
    return [*given[:1], given[1].replace('"findings": [', '"findings": [1, '), *given[2:]]


def sealed_anew(given: list[str]) -> list[str]:
    told = json.loads(given[1])
    del told["hash"]
    anew = sealed({**told, "findings": []}, told["previous"])
    return [given[0], json.dumps(anew) + "\n", *given[2:]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda given: given, None, id="nothing is changed"),
        pytest.param(lambda given: [*given, "\n"], None, id="an empty line"),
        pytest.param(lambda given: given[1:], None, id="a file that begins later"),
        pytest.param(lambda _: [], None, id="an empty file"),
        pytest.param(altered, "line 2 was altered", id="altered"),
        pytest.param(sealed_anew, "before line 3 is missing", id="altered and sealed anew"),
        pytest.param(lambda given: given[:1] + given[2:], "before line 2 is", id="removed"),
        pytest.param(lambda given: given[::-1], "before line 2 is", id="reordered"),
        pytest.param(lambda given: [*given, given[-1]], "before line 5 is", id="repeated"),
        pytest.param(lambda given: [*given, "{"], "line 5 is not", id="half a line"),
        pytest.param(lambda given: [*given, "[1]"], "line 5 is not", id="a list"),
        pytest.param(lambda given: [*given, "{}"], "line 5 is not", id="no hash"),
    ],
)
def test_each_change_of_a_file_shows(
    change: Callable[[list[str]], list[str]], says: str | None
) -> None:
    found = first_broken(change(lines()))
    assert found is None if says is None else found is not None and says in found


@pytest.mark.parametrize("line", ["{", "[]", "1", "{}", '{"hash": 1}'])
def test_what_is_no_statement_has_no_hash(line: str) -> None:
    assert hash_of(line) is None


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
@pytest.mark.parametrize("done", [0, 1, 2])
def test_statements_are_there_once_after_a_kill_at_any_moment(
    tmp_path: Path, done: int, cut: int
) -> None:
    file, told = tmp_path / "statements.jsonl", chain(3)
    texts = [json.dumps(each) + "\n" for each in told]
    left = texts[done][:cut]
    file.write_text("".join(texts[:done]) + left, encoding="utf-8")
    append(file, told)
    append(file, told)
    assert file.read_text(encoding="utf-8") == "".join(texts)
    with file.open(encoding="utf-8") as kept:
        assert first_broken(kept) is None


def test_a_statement_whose_end_an_editor_took_away_is_kept(tmp_path: Path) -> None:
    file, told = tmp_path / "statements.jsonl", chain(3)
    append(file, told[:2])
    kept = file.read_bytes()
    file.write_bytes(kept[:-1])
    append(file, told[2:])
    assert file.read_bytes() == kept + json.dumps(told[2]).encode() + b"\n"
