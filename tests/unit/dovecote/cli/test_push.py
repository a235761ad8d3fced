"""`dovecote push serve`: what it says where something is missing or wrong, without any server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dovecote.cli import extras
from dovecote.cli.main import app
from dovecote.push.api.access import hashed
from dovecote.push.client import Api
from dovecote.push.store.secrets import Keys
from outbox.errors import DovecoteError
from tests.support.waiting import patient


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["push", *arguments])
    assert done.exit_code == 0, done
    return done.output


def wrong(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["push", *arguments])
    assert isinstance(done.exception, DovecoteError), done
    return str(done.exception)


def test_a_token_and_what_the_settings_say_of_it_belong_together() -> None:
    found = dict(line.split() for line in said("token").splitlines())
    assert hashed(found["token"]) == found["settings"]
    assert said("token") != said("token")


def test_the_schema_of_a_subscription_is_printed() -> None:
    assert "endpoint" in json.loads(said("schema"))["required"]


def test_a_key_seals() -> None:
    assert Keys(said("key")).seal("x")


def test_a_key_is_written_to_a_new_file_of_ones_own(tmp_path: Path) -> None:
    file, before = tmp_path / "keys", os.umask(0)
    try:
        assert said("key", "--file", str(file)) == f"wrote a key to {file}\n"
        assert file.stat().st_mode & 0o777 == 0o600
        key = file.read_text()
        assert Keys(key).seal("x")
        assert "is there already" in wrong("key", "--file", str(file))
        assert file.read_text() == key
        assert "cannot write" in wrong("key", "--file", str(tmp_path / "none" / "keys"))
        assert [each.name for each in tmp_path.iterdir()] == ["keys"]
    finally:
        os.umask(before)


def test_a_file_that_the_shell_makes_for_a_key_is_ones_own(tmp_path: Path) -> None:
    with (tmp_path / "keys").open("wb") as file:
        command = [sys.executable, "-m", "dovecote", "push", "key"]
        subprocess.run(command, stdout=file, timeout=patient(60), check=True)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert Keys((tmp_path / "keys").read_text()).seal("x")


def test_settings_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "push.toml"
    file.write_text('dsn = "host=h"\n[brokers.a]\n"bootstrap.servers" = "b"\n')
    assert said("serve", "--config", str(file), "--check") == "settings are valid: brokers a\n"
    file.write_text("dsn = 3\n")
    assert "brokers: is missing" in wrong("serve", "--config", str(file), "--check")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["subscribe"], "say what"),
        (["subscribe", "missing.json"], "cannot read"),
        (["list", "--api", "file:///etc/passwd"], "not a URL"),
        (["list", "--token-file", "/nowhere/token"], "cannot read"),
        (["list", "--api", "http://127.0.0.1:1"], "does not answer"),
        (["dead", "requeue", "a"], "say which ones"),
        (["dead", "drop", "a", "b", "--all"], "say which ones"),
        (["dead", "list", "a", "--api", "http://127.0.0.1:1"], "does not answer"),
        (["replay", "a"], "--start or --offset"),
        (["replay", "a", "--start", "noon"], "earliest, latest"),
        (["replay", "a", "--offset", "t:0"], "TOPIC:PARTITION:OFFSET"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], words: str) -> None:
    assert words in wrong(*arguments)


@pytest.mark.parametrize("text", ["[]", "{", "\\x00", '{"id": "a", "id": "b"}'])
def test_a_file_that_holds_no_subscription_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert "a.json" in wrong("subscribe", str(tmp_path / "a.json"))


def test_what_is_loaded_is_left_out_of_collections_before_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "push.toml"
    file.write_text('dsn = "host=h"\n[brokers.a]\n"bootstrap.servers" = "b"\n')
    begun: list[str] = []

    @contextmanager
    def running(*_: object, **__: object) -> Iterator[None]:
        begun.append("loaded")
        yield

    def relax() -> None:
        assert begun == ["loaded"]
        begun.append("relaxed")
        raise RuntimeError(begun)  # the rest waits for a signal

    monkeypatch.setattr("dovecote.push.process.running", running)
    monkeypatch.setattr("dovecote.process.memory.relax", relax)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    CliRunner().invoke(app, ["push", "serve", "--config", str(file)])
    assert begun == ["loaded", "relaxed"]


def test_a_file_of_toml_is_told_what_is_wrong_with_its_toml(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('id = "a')
    assert "a.toml is not TOML: " in wrong("subscribe", str(tmp_path / "a.toml"))
    (tmp_path / "a.toml").write_text("a = " + "[" * 3_000)
    assert "a.toml is not TOML: " in wrong("subscribe", str(tmp_path / "a.toml"))


def test_the_list_says_what_holds_a_subscription_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(id_: str, state: str, reason: str = "", since: str | None = None) -> dict[str, Any]:
        return {
            "id": id_,
            "source": "/shop",
            "status": {"state": "active", "reason": ""},
            "health": {"state": state, "reason": reason, "since": since},
            "counts": {"delivered": 0, "failed": 1, "dead": 0},
            "delivery": {"lag": 1, "circuit": "closed", "trouble": ""},
            "endpoint": {"url": "http://10.1.2.3/"},
        }

    subscriptions = [
        told("a", "failing", "401 Unauthorized, 100 of the last 100", "2026-02-01T09:30:00+00:00"),
        told("b", "paused", "paused by an operator"),
        told("c", "idle", "everything is delivered"),
    ]
    monkeypatch.setattr(Api, "__call__", lambda *_: subscriptions)
    assert [line.partition("10.1.2.3/")[2].strip() for line in said("list").splitlines()] == [
        "(401 Unauthorized, 100 of the last 100, since 2026-02-01T09:30:00Z)",
        "(paused by an operator)",
        "",
    ]


@pytest.mark.parametrize(
    ("state", "reason", "remark"),
    [
        ("starting", "it has just begun", ""),
        ("failing", "PUSH_SECRET_TOKEN is not set", "  (PUSH_SECRET_TOKEN is not set)"),
    ],
)
def test_a_new_subscription_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, state: str, reason: str, remark: str
) -> None:
    made = {"id": "a", "health": {"state": state, "reason": reason}}
    monkeypatch.setattr(Api, "__call__", lambda *_: made)
    asked = ["subscribe", "--id", "a", "--topic", "t", "--endpoint", "http://x"]
    assert said(*asked) == f"a  {state}{remark}\n"


LETTER = {
    "id": "e-1",
    "source": "/shop",
    "key": None,
    "origin": "flights/0/7",
    "reason": "it\x1b answered 503",
    "attempts": 3,
    "died_at": "2026-02-01T09:30:00+00:00",
    "size": 2,
}


def test_dead_letters_are_shown_so_that_they_steer_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"total": 7, "letters": [LETTER]}
    monkeypatch.setattr(Api, "__call__", lambda *_: found)
    line, count = said("dead", "list", "a").splitlines()
    assert line.startswith("e-1  flights/0/7  key none  2026-02-01T09:30:00+00:00  'it\\x1b ans")
    assert count == "1 of 7 dead letters"
    assert json.loads(said("dead", "list", "a", "--json")) == LETTER

    whole = {**LETTER, "headers": [["x", None], ["y", "z"]], "value": None}
    monkeypatch.setattr(Api, "__call__", lambda *_: whole)
    assert "headers      x: none, y: 'z'" in said("dead", "show", "a", "e-1").splitlines()
    assert json.loads(said("dead", "show", "a", "e-1", "--json")) == whole


def test_dead_letters_that_are_meant_are_asked_for_and_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def ask(_: Api, method: str, path: str, body: object) -> list[dict[str, Any]]:
        asked.append((method, path, body))
        return [LETTER]

    monkeypatch.setattr(Api, "__call__", ask)
    assert said("dead", "requeue", "a", "--since", "2026-02-01", "--key", "k") == (
        "requeued 1 record\n"
    )
    assert json.loads(said("dead", "drop", "a/b", "--all", "--json"))["action"] == "dropped"
    assert asked == [
        (
            "POST",
            "/subscriptions/a/dead/requeue",
            {"key": "k", "since": "2026-02-01T00:00:00+00:00"},
        ),
        ("POST", "/subscriptions/a%2Fb/dead/drop", {"all": True}),
    ]
    assert "no dead letter with id e-2" in wrong("dead", "requeue", "a", "e-1", "e-2")
    monkeypatch.setattr(Api, "__call__", lambda *_: [])
    assert "no such dead letter" in wrong("dead", "drop", "a", "--reason", "503")


def test_the_audit_log_is_listed_so_that_it_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    entry = {
        "at": "2026-02-01T09:30:00+00:00",
        "actor": "shop",
        "address": "10.0.0.1",
        "method": "DELETE",
        "path": "/subscriptions/a\x1b",
        "status": 403,
        "error": "no right",
        "detail": "",
        "times": 1,
    }
    stranger = entry | {"actor": None, "times": 7, "error": "", "address": None, "path": "/"}

    def ask(_: Api, method: str, path: str) -> list[dict[str, Any]]:
        asked.append(f"{method} {path}")
        return [entry, stranger]

    monkeypatch.setattr(Api, "__call__", ask)
    assert said("audit", "a&b").splitlines() == [
        (
            "2026-02-01T09:30:00+00:00  shop  from 10.0.0.1  DELETE '/subscriptions/a\\x1b'  403"
            "  (no right)"
        ),
        "2026-02-01T09:30:00+00:00  nobody known  DELETE /  403  7 times",
    ]
    assert json.loads(said("audit", "--json", "--limit", "1").splitlines()[0]) == entry
    assert asked == ["GET /audit?limit=50&subscription=a%26b", "GET /audit?limit=1"]


def test_without_its_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_OF_PUSH", ("json", "not_there"))
    assert wrong("key") == "push needs not_there: pip install 'dovecote[push]'"
