"""Run a relay, a consumer and push, and the console that watches them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg

from dovecote.console.process import running
from dovecote.console.settings import ConsoleSettings
from dovecote.devstack.places import free_port
from dovecote.observe.sources import read
from dovecote.push.api.access import hashed
from dovecote.push.store import schema as push_schema
from tests.support.idle_push import TOKEN, Client
from tests.support.relaying import RelayProcess, Relays, installed
from tests.support.waiting import patient, until

COMMAND = str(Path(sys.executable).with_name("dovecote"))

_HANDLER = "def handle(event):\n    return None\n"
_CONSUMER = """
group = "shipping"
topics = ["orders"]
[http]
port = {port}
[kafka]
"bootstrap.servers" = "{bootstrap}"
"""
_PUSH = """
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
_WATCH = """
[kafka]
"bootstrap.servers" = "{bootstrap}"
[console]
write = true
state = "{folder}/state"
every = "1s"
timeout = "1s"
[console.http]
port = 0
[sources.outbox.shop]
dsn = {{ env = "WATCH_DSN" }}
name = "{name}"
metrics = ["http://127.0.0.1:{relay}"]
[sources.consumer.shipping]
group = "shipping"
topics = ["orders"]
metrics = ["http://127.0.0.1:{consumer}"]
[sources.push.main]
url = "http://127.0.0.1:{push}"
token = {{ env = "WATCH_TOKEN" }}
"""


class Shown:
    """The answers of a console."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        with urlopen(f"{self.url}{path}", timeout=patient(20)) as answer:  # noqa: S310  # our own
            return json.loads(answer.read())

    def post(self, path: str, body: object) -> tuple[int, Any]:
        """Return the status and the answer."""
        data, kind = json.dumps(body).encode(), {"content-type": "application/json"}
        try:
            with urlopen(Request(f"{self.url}{path}", data, kind), timeout=patient(20)) as answer:  # noqa: S310  # as above
                return answer.status, json.loads(answer.read())
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def troubles(self) -> dict[str, str]:
        """Return the titles of the troubles by their parts."""
        return {each["part"]: each["title"] for each in self.get("/api/flow")["troubles"]}

    def states(self) -> dict[str, str]:
        """Return the states of all parts."""
        return {each["id"]: each["state"] for each in self.get("/api/flow")["nodes"]}


class Fleet:
    """A relay, a consumer and push on one stack."""

    def __init__(self, folder: Path, dsn: str, bootstrap: str, stack: ExitStack) -> None:
        self.folder, self.dsn, self.bootstrap, self._stack = folder, dsn, bootstrap, stack
        self.consumer_port, self.push_port = free_port(), free_port()
        self.relays = Relays(folder, installed(dsn), bootstrap)
        with psycopg.connect(dsn) as conn:
            push_schema.install(conn)
        self.push = Client(self.push_port, TOKEN)

    def relay(self) -> RelayProcess:
        """Start the relay, and wait until it publishes."""
        self._stack.callback(self.relays.end)
        return self.relays.active(kafka={"compression.type": "none"})

    def consumer(self) -> subprocess.Popen[bytes]:
        """Start the consumer."""
        (self.folder / "handler.py").write_text(_HANDLER)
        text = _CONSUMER.format(port=self.consumer_port, bootstrap=self.bootstrap)
        (self.folder / "c.toml").write_text(text)
        return self._started("consume", "run", "-c", "c.toml", "--handler", "handler:handle")

    def pushing(self) -> subprocess.Popen[bytes]:
        """Start push, and wait until its API answers."""
        text = _PUSH.format(port=self.push_port, bootstrap=self.bootstrap, token=hashed(TOKEN))
        (self.folder / "push.toml").write_text(text)
        process = self._started("push", "serve", "--config", "push.toml")

        def ready() -> bool:
            try:
                return self.push("GET", "/healthz").status == 200
            except OSError:
                return False

        until(ready, within=30, what="push answers")
        return process

    def settings(self, relay: RelayProcess) -> ConsoleSettings:
        """Return the settings of a console that watches them."""
        port = re.search(r"serving .* on \S+:(\d+)", relay.log)
        assert port is not None
        file = self.folder / "watch.toml"
        file.write_text(
            _WATCH.format(
                bootstrap=self.bootstrap,
                folder=self.folder,
                name=self.relays.name,
                relay=port[1],
                consumer=self.consumer_port,
                push=self.push_port,
            )
        )
        return read(ConsoleSettings, file, {"WATCH_TOKEN": TOKEN, "WATCH_DSN": self.dsn})

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self.folder / f"{words[0]}.log").open("ab"))
        process = subprocess.Popen(
            [COMMAND, *words],
            cwd=self.folder,
            env={**os.environ, "DSN": self.dsn},
            stdout=log,
            stderr=log,
        )
        self._stack.callback(ended, process)
        return process


def ended(process: subprocess.Popen[bytes]) -> None:
    """Make sure that nothing is left of a process."""
    if process.poll() is None:
        process.kill()
    process.wait(patient(20))


@contextmanager
def fleet(folder: Path, dsn: str, bootstrap: str) -> Iterator[Fleet]:
    """Yield parts that can be started, and end them afterwards."""
    with ExitStack() as stack:
        yield Fleet(folder, dsn, bootstrap, stack)


@contextmanager
def console(settings: ConsoleSettings) -> Iterator[Shown]:
    """Run a console in this process."""
    with running(settings) as found:
        yield Shown(found.url)
