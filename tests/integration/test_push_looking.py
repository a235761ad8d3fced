"""`dovecote push show`, `attempts` and `update`, against the real API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from dovecote.cli.main import app
from dovecote.push.rules.sending.ports import AttemptReport
from dovecote.push.rules.sending.ports import Outcome as Word
from tests.support.fix_stack import Servers
from tests.support.idle_push import LEAST, TOKEN, Client, idle, installed, push_settings
from tests.support.waiting import until


@pytest.fixture
def process(database: str, stack: Servers) -> Iterator[tuple[Client, Any, int]]:
    settings = push_settings(database, stack.kafka.bootstrap)
    with installed(database), idle(settings) as (running, engine):
        client = Client(running.at.port)
        endpoint = {**LEAST["endpoint"], "headers": {"Authorization": "Bearer hidden-word"}}
        made = client("POST", "/subscriptions", {**LEAST, "endpoint": endpoint})
        assert made.status == 201, made
        yield client, engine, running.at.port


def run(port: int, *words: str) -> Outcome:
    command = ["push", words[0], "slack", *words[1:], "--api", f"http://127.0.0.1:{port}"]
    return CliRunner().invoke(app, command, env={"DOVECOTE_API_TOKEN": TOKEN})


def test_a_subscription_is_shown_and_single_fields_are_set(
    process: tuple[Client, Any, int],
) -> None:
    client, engine, port = process
    shown = run(port, "show")
    assert "endpoint.headers.Authorization ********" in shown.output
    assert "hidden-word" not in shown.output
    told = json.loads(run(port, "show", "--json").output)
    done = run(port, "update", "--set", "limits.rate=50", "--set", "endpoint.timeout=20s")
    assert done.exit_code == 0, repr(done.exception)
    version = told["version"] + 1
    assert done.output == f"slack  version {version}  set limits.rate, endpoint.timeout\n"
    work = until(
        lambda: (found := engine.work.get("slack")) and found.subscription.limits.rate and found,
        within=10,
        what="the new version",
    )
    secret = work.subscription.endpoint.headers["Authorization"]
    assert "hidden-word" in str(getattr(secret, "get_secret_value", lambda: secret)())
    assert run(port, "update", "--set", "limits.rate=null").exit_code == 0
    assert client("GET", "/subscriptions/slack").body["limits"]["rate"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("limits.rat=5", "there is no such field"),
        ("limits.rate=fast", "limits.rate"),
        ("id=other", "id: it stays"),
        ("endpoint.url=https://elsewhere.example/x", "another server would be sent the secrets"),
        ("endpoint.headers.Authorization=********", "this stands for a secret"),
        ("endpoint.headers.Authorization=sealed:gAAAA", "this stands for a secret"),
        ("topics.x=1", "has no fields of its own"),
        ("limits.rate", "is not FIELD=VALUE"),
    ],
)
def test_what_cannot_be_set_is_refused(
    process: tuple[Client, Any, int], given: str, said: str
) -> None:
    client, _, port = process
    before = client("GET", "/subscriptions/slack").body
    done = run(port, "update", "--set", given)
    assert said in str(done.exception)
    assert client("GET", "/subscriptions/slack").body["version"] == before["version"]


def test_a_subscription_that_somebody_changed_meanwhile_stays(
    process: tuple[Client, Any, int],
) -> None:
    client, _, port = process
    version = str(client("GET", "/subscriptions/slack").body["version"])
    assert run(port, "update", "--set", "limits.rate=5", "--version", version).exit_code == 0
    done = run(port, "update", "--set", "limits.rate=6", "--version", version)
    assert "was changed meanwhile" in str(done.exception)
    assert client("GET", "/subscriptions/slack").body["limits"]["rate"] == 5


def test_attempts_are_shown_by_outcome_event_and_time(process: tuple[Client, Any, int]) -> None:
    client, engine, port = process
    outcomes: list[Word] = ["delivered", "retry", "dead"]
    for number, outcome in enumerate(outcomes):
        engine.book.attempted(
            AttemptReport(
                *("slack", f"e{number}", "flights", 0, number, "k\x1b[2J", 1),
                *(1_700_000_000.0 + number, 0.25, None if number else 204, outcome),
                "\x1b]0;stolen\x07" if number else "",
            )
        )
    until(
        lambda: len(client("GET", "/subscriptions/slack/attempts").body) == 3,
        within=20,
        what="three attempts",
    )
    done = run(port, "attempts")
    assert done.exit_code == 0, repr(done.exception)
    assert [line.split("  ")[1] for line in done.output.splitlines()] == outcomes
    assert "\x1b" not in done.output
    assert "no answer" in done.output
    failed = run(port, "attempts", "--failed", "--json")
    ids = [json.loads(line)["event_id"] for line in failed.output.splitlines()]
    assert ids == ["e1", "e2"]
    assert "e2" in run(port, "attempts", "--event", "e2").output
    assert run(port, "attempts", "--since", "2026-01-01").output == ""
