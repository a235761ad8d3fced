"""`dovecote consume dead`: what records say, printed; and what options say."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import dovecote.cli.consume.dead
from dedup.retries import copies
from dedup.retries.letter import letter
from dedup.rules.identity import Identity
from dovecote.cli.main import app
from outbox.envelope import ID, Record

FORGED = "a\x1b[31mred\x07\nid           FORGED"


@pytest.mark.parametrize(("words", "lines"), [(["list"], 2), (["show", FORGED], 16)])
def test_a_record_neither_steers_the_terminal_nor_forges_a_line(
    words: list[str], lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = FORGED.encode()
    came = Record("t", 0, 1, 0, given, given, [(ID, given), (FORGED, b"\xff")])
    died = copies.dead(came, Identity("/s", FORGED), now=0, error=FORGED)
    record = Record("dead", 0, 1, 0, given, died.value, died.headers)
    topic = SimpleNamespace(letters=lambda _: [letter(record)], record=lambda _: record)
    settings = SimpleNamespace(group=None)
    monkeypatch.setattr(dovecote.cli.consume.dead, "_opened", lambda *_: (settings, topic))
    shown = CliRunner().invoke(app, ["consume", "dead", *words]).stdout
    assert len(shown.splitlines()) == lines
    assert all(line.isprintable() for line in shown.splitlines())
    told = json.loads(CliRunner().invoke(app, ["consume", "dead", *words, "--json"]).stdout)
    assert (told["id"], told["key"]) == (FORGED, FORGED)
    if words[0] == "show":
        assert told["value"] == FORGED
        assert [FORGED, {"hex": "ff"}] in told["headers"]


@pytest.mark.parametrize(
    "words", ["consume dead list --since noon", "push dead drop slack --until noon"]
)
def test_a_time_that_is_none_is_reported_before_anything_is_connected(words: str) -> None:
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    said = f"'{words.split()[-2]}': 'noon' is not a time; write 2026-02-01, or 2026-02-01T09:30"
    assert said in result.stderr
