"""The examples and tables of the document on subscriptions are those of the program."""

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic import BaseModel, ValidationError
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.process.settings.loading import load
from dovecote.push.api.answers import Skipped
from dovecote.push.api.dead import Chosen
from dovecote.push.rules.sending.original import OriginalSubscription
from dovecote.push.rules.subscription.subscription import Subscription, problems, subscription
from dovecote.push.settings import PREFIX, PushSettings, TokenSettings
from dovecote.push.store.secrets import Keys
from tests.support.documents import ROOT, blocks, code_spans, commands, table

PUSH = ROOT / "docs/push-api.md"
COMMANDS = [each for each in commands(PUSH) if each.line.startswith("dovecote push")]
LETTER = {
    "id": "0190b3f2-6c1e-7a55-8d0e-2f6f3a1c9b10",
    "source": "/shop",
    "key": "k",
    "origin": "flights/0/7",
    "reason": "it answered 503",
    "attempts": 3,
    "died_at": "2026-02-01T09:30:00+00:00",
    "size": 2,
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "push-keys").write_text(Fernet.generate_key().decode())
    for block in blocks(PUSH):
        if block.name:
            (tmp_path / block.name).write_text(block.text)
    return tmp_path


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, Any]]]:
    """Answers like the API; yields the requests."""
    asked: list[tuple[str, str, Any]] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            asked.append((self.command, self.path, json.loads(self.rfile.read(length) or "null")))
            answer: Any = {
                "id": "slack",
                "status": {"state": "active"},
                "health": {"state": "starting"},
            }
            if self.path.endswith("/replay"):
                answer = {"offsets": {"flights": {"0": 120}}}
            elif self.path.endswith("/skip"):
                answer = {"first": 42, "until": 43}
            elif self.path.endswith(("/dead/requeue", "/dead/drop")):
                answer = [LETTER]
            elif "/dead/" in self.path:
                answer = {**LETTER, "headers": [["ce_id", LETTER["id"]]], "value": "{}"}
            elif "/dead?" in self.path:
                answer = {"total": 1, "letters": [LETTER]}
            elif self.command == "GET" and self.path != "/subscriptions/slack":
                answer = []
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST  # noqa: N815  # the base's name
        do_DELETE = do_POST  # noqa: N815  # the base's name
        do_PATCH = do_POST  # noqa: N815  # the base's name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("DOVECOTE_API", f"http://127.0.0.1:{server.server_port}")
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


def test_the_settings_of_the_examples_are_valid(here: Path) -> None:
    files = [block.name for block in blocks(PUSH, "toml")]
    assert files == ["push.toml", "secrets.toml", "shared.toml", "scoped.toml"]
    environ = {"PUSH_DSN": "host=h", "SHOP_TOKEN_HASH": "sha256:" + "0" * 64}
    for name in files:
        found = load(PushSettings, here / name, prefix=PREFIX, environ=environ)
        Keys(found.secrets.keys)


def test_the_subscriptions_of_the_examples_are_valid_and_so_are_those_of_its_table(
    here: Path,
) -> None:
    found = subscription(json.loads((here / "slack.json").read_text()))
    original = OriginalSubscription.model_validate(
        json.loads((here / "original.json").read_text())
    )
    assert original.read().id == "slack_notifications"
    for name, _, words in table(PUSH, "Subscribe"):
        field = code_spans(name)[0]
        given = found.model_dump(mode="json", context={"seal": str})
        for span in code_spans(words):
            if span.startswith("{"):
                subscription({**given, field: json.loads(span.replace("…", '"env:X"'))})


def test_what_is_said_of_a_mistake_is_what_the_document_shows() -> None:
    (shown,) = (block.text for block in blocks(PUSH, "json") if not block.name)
    with pytest.raises(ValidationError) as caught:
        subscription({"id": "a", "topics": ["t"], "endpoint": {"url": "here"}})
    ((path, message),) = problems(caught.value)
    assert json.loads(shown) == {
        "error": f"{path}: {message}",
        "problems": [{"path": path, "message": message}],
    }


def test_the_table_of_fields_has_all_of_them() -> None:
    rows = {code_spans(row[0])[0] for row in table(PUSH, "Subscribe")}
    assert rows == set(Subscription.model_fields)


def test_the_table_of_settings_has_all_of_them_and_their_defaults() -> None:
    rows = {code_spans(row[0])[0]: row[1] for row in table(PUSH, "Settings")}
    assert set(rows) == set(fields(PushSettings))
    found = PushSettings.model_validate(
        {"dsn": "host=none", "brokers": {"a": {"bootstrap.servers": "b"}}}
    )
    for path, default in rows.items():
        value: Any = found
        for part in path.split("."):
            value = getattr(value, {"schema": "schema_name"}.get(part, part))
        if default not in {"", "none"}:
            shown = json.loads(code_spans(default)[0])
            told = found.model_dump(mode="json") if path == "poll" else None
            assert told is not None or value == (tuple(shown) if shown == [] else shown)


def test_the_table_of_a_token_has_all_of_its_settings_and_their_defaults() -> None:
    rows = {code_spans(row[0])[0]: row[1] for row in table(PUSH, "The table of a token")}
    assert set(rows) == set(TokenSettings.model_fields)
    found = TokenSettings.model_validate({"sha256": "sha256:" + "0" * 64})
    for name, default in rows.items():
        if default not in {"", "its name"} and "<owner>" not in default:
            shown = json.loads(code_spans(default)[0])
            value = getattr(found, name)
            assert value == (tuple(shown) if isinstance(shown, list) else shown)
    assert found.scope("shop").ids == ("shop.*",)


def fields(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from (f"{name}.{each}" for each in fields(inner))
        else:
            yield field.alias or name


def test_the_commands_do_what_they_say(here: Path, api: list[tuple[str, str, Any]]) -> None:
    runner = CliRunner()
    (here / "push-keys").unlink()  # the commands make it
    for each in COMMANDS:
        line = each.line.partition(" > ")[0]
        if "--config" in line:
            continue
        done = runner.invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
        assert not each.output.strip() or done.output == each.output.strip() + "\n", line
    asked = [(method, path) for method, path, _ in api]
    assert asked.count(("POST", "/subscriptions")) == 2
    assert ("DELETE", "/subscriptions/slack") in asked
    assert [each for each in asked if "/dead" in each[1]] == [
        ("GET", "/subscriptions/slack/dead?limit=50"),
        ("GET", f"/subscriptions/slack/dead/{LETTER['id']}"),
        ("POST", "/subscriptions/slack/dead/requeue"),
        ("POST", "/subscriptions/slack/dead/drop"),
    ]
    chosen = [body for _, path, body in api if path.endswith(("/requeue", "/drop"))]
    assert chosen == [{"reason": "503"}, {"ids": [LETTER["id"]]}]
    replays = [body for _, path, body in api if path.endswith("/replay")]
    assert replays == [
        {"start": "earliest"},
        {"start": {"time": "2026-02-01T09:30:00+01:00"}},
        {"start": {"offsets": {"flights": {"0": 120}}}},
    ]
    assert here.exists()


def test_what_curl_sends_is_what_the_api_takes() -> None:
    lines = [each.line for each in commands(PUSH) if each.line.startswith("curl")]
    assert lines
    for line in lines:
        body = Skipped if "/skip " in line else Chosen
        body.model_validate(json.loads(shlex.split(line)[-1]))
