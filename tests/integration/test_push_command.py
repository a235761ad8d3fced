"""`dovecote push serve` as people run it: with its commands, kills, replays and dead letters."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from dovecote.devstack.places import free_port
from dovecote.push.api.access import hashed
from tests.support.consuming import event, produce
from tests.support.delivering import Endpoint, Reply
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import Client, installed
from tests.support.waiting import patient, until

COMMAND = str(Path(sys.executable).with_name("dovecote"))
TOKEN = "let-me-in"  # noqa: S105  # of this test
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105  # of the public test vectors

SETTINGS = """
dsn = {{ env = "DSN" }}
allow_addresses = ["127.0.0.0/8"]
poll = "200ms"

[http]
port = {port}

[brokers.default]
"bootstrap.servers" = "{bootstrap}"

[api.tokens]
ops = "{token}"
"""


class Pushing:
    """Processes of one installation, one after the other, and the commands that talk to them."""

    def __init__(self, folder: Path, dsn: str, bootstrap: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._environment = {
            **os.environ,
            "DSN": dsn,
            "PUSH_SECRET_HOOK": SECRET,
            "DOVECOTE_API": f"http://127.0.0.1:{self.port}",
            "DOVECOTE_API_TOKEN": TOKEN,
        }
        text = SETTINGS.format(port=self.port, bootstrap=bootstrap, token=hashed(TOKEN))
        (folder / "push.toml").write_text(text)
        self.api = Client(self.port, TOKEN)

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        log = self._folder / "push.log"
        with log.open("ab") as out:
            process = subprocess.Popen(
                [COMMAND, "push", "serve", "--config", "push.toml"],
                cwd=self._folder,
                env=self._environment,
                stderr=out,
            )
        try:
            until(self._is_ready, within=30, what=f"push is ready: {log.read_text()}")
            yield process
        finally:
            process.terminate()
            status = process.wait(patient(40))
        assert status in {0, -9}, log.read_text()

    def __call__(self, *arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [COMMAND, "push", *arguments],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done
        return done.stdout if status == 0 else done.stderr

    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("list", "--json"))
        return found

    def _is_ready(self) -> bool:
        try:
            return self.api("GET", "/readyz").status == 200
        except OSError:
            return False


@pytest.fixture
def pushing(tmp_path: Path, database: str, stack: Servers) -> Iterator[Pushing]:
    with installed(database) as dsn:
        yield Pushing(tmp_path, dsn, stack.kafka.bootstrap)


def test_what_is_subscribed_is_delivered_paused_replayed_given_up_and_revived(
    pushing: Pushing, stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name, kafka = topic(2), stack.kafka.bootstrap
    produce(kafka, *(event(name, f"k{n % 3}", n) for n in range(30)))
    answers = {"status": 204}
    with Endpoint(lambda _: Reply(answers["status"])) as endpoint:
        subscription = {
            "id": "hook",
            "topics": [name],
            "endpoint": {"url": endpoint.url},
            "signing": {"secrets": ["env:HOOK"]},
        }
        (tmp_path / "hook.json").write_text(json.dumps(subscription))
        with pushing.process() as process:
            assert pushing("subscribe", "hook.json").split() == ["hook", "starting"]
            again = pushing("subscribe", "hook.json").split()
            assert again[0] == "hook"
            assert again[1] in {"starting", "idle", "working"}
            endpoint.has_got(30, within=30)
            for request in endpoint.requests:
                Webhook(SECRET).verify(request.body, request.headers)
            ids = {request.event_id for request in endpoint.requests}
            assert len(ids) == 30
            until(lambda: pushing.told()["counts"]["delivered"] == 30, within=15, what="counted")
            until(lambda: pushing.told()["delivery"]["lag"] == 0, within=15, what="no lag")
            assert pushing("pause", "hook").split() == ["hook", "paused"]
            until(lambda: pushing.told()["delivery"]["processes"] == 0, within=15, what="paused")
            produce(kafka, event(name, "later", 1))
            process.kill()
            process.wait()
        with pushing.process():
            assert pushing.told()["status"]["state"] == "paused"
            assert len(endpoint.requests) == 30
            pushing("resume", "hook")
            endpoint.has_got(31, within=30)
            assert endpoint.requests[30].event_id == "later-1"

            assert f"{name}/0 goes on at 0" in pushing("replay", "hook", "--start", "earliest")
            endpoint.has_got(62, within=40)
            assert {request.event_id for request in endpoint.requests[31:]} == {
                *ids,
                "later-1",
            }

            given_up_and_revived(pushing, kafka, name, endpoint, answers)

            answers["status"] = 410
            produce(kafka, event(name, "gone", 1))
            until(
                lambda: pushing.told()["status"]["state"] == "disabled",
                within=30,
                what="disabled",
            )

            def outcomes() -> set[str]:
                attempts = pushing.api("GET", "/subscriptions/hook/attempts").body
                return {each["outcome"] for each in attempts}

            wanted = {"delivered", "dead", "disabled"}
            until(lambda: outcomes() == wanted, within=30, what="the attempts are recorded")
            assert pushing("delete", "hook").split() == ["hook", "deleted"]
            assert pushing("list") == ""
    assert SECRET not in (tmp_path / "push.log").read_text()


def given_up_and_revived(
    pushing: Pushing, kafka: str, name: str, endpoint: Endpoint, answers: dict[str, int]
) -> None:
    answers["status"] = 422
    produce(kafka, event(name, "unwanted", 1))
    letters = until(
        lambda: pushing.api("GET", "/subscriptions/hook/dead").body["letters"],
        within=30,
        what="a dead letter",
    )
    assert letters[0]["id"] == "unwanted-1"
    assert "422" in letters[0]["reason"]
    assert pushing("dead", "list", "hook").endswith("1 of 1 dead letter\n")
    whole = json.loads(pushing("dead", "show", "hook", "unwanted-1", "--json"))
    assert json.loads(whole["value"]) == {"n": 1}
    answers["status"] = 204
    sent = len(endpoint.requests)
    assert pushing("dead", "requeue", "hook", "unwanted-1") == "requeued 1 record\n"
    endpoint.has_got(sent + 1, within=30)
    assert endpoint.requests[sent].event_id == "unwanted-1"
    # Kafka answers a commit before each reader sees it.
    until(
        lambda: pushing.api("GET", "/subscriptions/hook/dead").body["total"] == 0,
        within=10,
        what="no dead letter",
    )


def test_commands_say_what_is_wrong_and_settings_are_checked(pushing: Pushing) -> None:
    assert "settings are valid" in pushing("serve", "--config", "push.toml", "--check")
    assert "does not answer" in pushing("list", status=1)
    assert "say what" in pushing("subscribe", status=2)
    assert "--start or --offset" in pushing("replay", "x", status=2)
    assert "sha256:" in pushing("token")
