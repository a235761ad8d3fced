"""`dovecote relay status`: for people, for programs, and by its exit status."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dovecote.cli.relay.status
from dovecote.cli.main import app
from dovecote.process.states import State
from relay.operating.status import Status
from relay.rules.sharding import Shard

FOUND = Status(
    "shop",
    "10.0.0.7 (session 42)",
    "10:10:",
    1234,
    5.678,
    state=State.WORKING,
    reason="1234 events are being published",
)
NOBODY = Status("shop", None, "1:1:", 0, 0.0, reason="no relay is active")


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "relay.toml"
    file.write_text('dsn = "host=h"\n[kafka]\n"bootstrap.servers" = "b"\n', encoding="utf-8")
    return str(file)


def shown(monkeypatch: pytest.MonkeyPatch, found: Status, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(dovecote.cli.relay.status, "look", lambda *_: found)
    result = CliRunner().invoke(app, ["relay", "status", *arguments])
    return result.exit_code, result.output


def test_people_see_who_is_active_and_the_lag(
    monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    status, text = shown(monkeypatch, FOUND, "-c", config)
    assert status == 0
    assert "10.0.0.7 (session 42)" in text
    assert "state    working: 1234 events are being published" in text
    assert "1,234 events, 5.7 s" in text


def test_programs_get_one_json_line(monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    status, text = shown(monkeypatch, FOUND, "-c", config, "--json")
    assert status == 0
    assert json.loads(text) == {
        "name": "shop",
        "active": "10.0.0.7 (session 42)",
        "since": "10:10:",
        "lag_rows": 1234,
        "lag_seconds": 5.678,
        "lag_bytes": None,
        "parked": 0,
        "state": "working",
        "reason": "1234 events are being published",
    }


def test_people_see_what_is_parked_if_anything_is(
    monkeypatch: pytest.MonkeyPatch, config: str
) -> None:
    assert "parked" not in shown(monkeypatch, FOUND, "-c", config)[1]
    some = replace(FOUND, parked=3)
    assert (
        "3 events; see `dovecote relay parked list`" in shown(monkeypatch, some, "-c", config)[1]
    )


@pytest.mark.parametrize(("lazy", "expected"), [(None, 0), ("shop.shard-1", 1)])
def test_shards_are_told_one_by_one_and_each_needs_a_relay(
    monkeypatch: pytest.MonkeyPatch, config: str, lazy: str | None, expected: int
) -> None:
    def found(_: object, shard: Shard) -> Status:
        return replace(NOBODY if shard.name == lazy else FOUND, name=shard.name)

    Path(config).write_text('name = "shop"\nshards = 2\n' + Path(config).read_text())
    monkeypatch.setattr(dovecote.cli.relay.status, "look", found)
    shown = CliRunner().invoke(app, ["relay", "status", "-c", config])
    assert shown.exit_code == expected
    assert "outbox   shop.shard-0" in shown.output
    assert "outbox   shop.shard-1" in shown.output
    told = json.loads(CliRunner().invoke(app, ["relay", "status", "-c", config, "--json"]).output)
    assert told["name"] == "shop"
    assert [shard["name"] for shard in told["shards"]] == ["shop.shard-0", "shop.shard-1"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_without_an_active_relay_it_fails(
    monkeypatch: pytest.MonkeyPatch, config: str, form: list[str]
) -> None:
    assert shown(monkeypatch, NOBODY, "-c", config, *form)[0] == 1
