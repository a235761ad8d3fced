"""`dovecote relay parked`: what an operator is told who asks for something."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import dovecote.cli.relay.parked
from dovecote.cli.main import app
from outbox.errors import DovecoteError
from relay.postgres.desk import Asked, Content, ParkedEvent
from relay.rules.crowding import Census

FORGED = "a\x1b[31mred\x07\nid           FORGED"


@pytest.mark.parametrize("has_relay", [True, False])
def test_who_waits_without_a_relay_is_told_so(
    *, has_relay: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def desk(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            has_relay=lambda: has_relay,
            ask=lambda *_: Asked([1], [7, 8]),
            are_done=lambda _: True,
            left=lambda _: 0,
        )

    monkeypatch.setattr(dovecote.cli.relay.parked, "desk", desk)
    config = tmp_path / "relay.toml"
    config.write_text('dsn = "host=h"\n[kafka]\n"bootstrap.servers" = "b"\n', encoding="utf-8")
    drop = ["relay", "parked", "drop", "--all", "--config", str(config)]
    waited = CliRunner().invoke(app, [*drop, "--wait"])
    assert waited.stdout == "dropped 2 events\n"
    assert ("no relay is active: waiting" in waited.stderr) is not has_relay
    asked = CliRunner().invoke(app, drop).stdout
    assert asked.startswith("asked to drop 2 events; ")
    assert ("no relay is active" in asked) is not has_relay


@pytest.mark.parametrize(
    ("asked", "left", "done", "said"),
    [
        (1, 1, "requeued 0 events", "1 of 1 event stays parked"),
        (3, 1, "requeued 2 events", "1 of 3 events stays parked"),
        (3, 2, "requeued 1 event", "2 of 3 events stay parked"),
    ],
)
def test_who_waits_is_told_how_many_of_those_stay_parked(
    asked: int, left: int, done: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def desk(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            has_relay=lambda: True,
            ask=lambda *_: Asked([1], range(asked)),
            are_done=lambda _: True,
            left=lambda _: left,
        )

    monkeypatch.setattr(dovecote.cli.relay.parked, "desk", desk)
    config = tmp_path / "relay.toml"
    config.write_text('dsn = "host=h"\n[kafka]\n"bootstrap.servers" = "b"\n', encoding="utf-8")
    requeue = ["relay", "parked", "requeue", "--all", "--wait", "--config", str(config)]
    result = CliRunner().invoke(app, requeue)
    assert isinstance(result.exception, DovecoteError)
    assert str(result.exception) == f"{said}: see `dovecote relay parked list`"
    assert result.stdout == f"{done}\n"


def forged() -> ParkedEvent:
    """Return an event that would colour the screen and add lines, wherever it is printed."""
    return ParkedEvent(
        number=1,
        id="0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10",
        topic="t",
        key=FORGED.encode(),
        type="Esc\x1b[31mRED\n",
        code="MSG_SIZE_TOO_LARGE",
        reason=FORGED,
        holds=True,
        attempt=1,
        parked_at=datetime(2026, 2, 1, tzinfo=UTC),
        source=FORGED,
        subject=FORGED,
        content_type=FORGED,
        time=datetime(2026, 2, 1, tzinfo=UTC),
        size=3,
    )


@pytest.mark.parametrize(
    ("words", "lines"), [(["list"], 2), (["show", forged().id], len(fields(ParkedEvent)) - 1 + 2)]
)
def test_an_event_neither_steers_the_terminal_nor_forges_a_line(
    words: list[str], lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = Content(FORGED.encode(), [(FORGED, FORGED.encode()), ("binary", b"\xff\x1b")])

    @contextmanager
    def desk(_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            counted=lambda: Census(1),
            elsewhere=dict,
            events=lambda *_: [forged()],
            content=lambda _: content,
        )

    monkeypatch.setattr(dovecote.cli.relay.parked, "desk", desk)
    config = tmp_path / "relay.toml"
    config.write_text('dsn = "host=h"\n[kafka]\n"bootstrap.servers" = "b"\n', encoding="utf-8")
    shown = CliRunner().invoke(app, ["relay", "parked", *words, "--config", str(config)]).stdout
    assert len(shown.splitlines()) == lines
    assert all(line.isprintable() for line in shown.splitlines())
    assert r"'Esc\x1b[31mRED\n'" in shown
    exact = (
        CliRunner()
        .invoke(app, ["relay", "parked", *words, "--json", "--config", str(config)])
        .stdout
    )
    told = json.loads(exact)
    assert told["type"] == forged().type
    assert (told["key"], told["reason"]) == (FORGED, FORGED)
    if words[0] == "show":
        assert told["value"] == FORGED
        assert told["headers"] == [[FORGED, FORGED], ["binary", {"hex": "ff1b"}]]
