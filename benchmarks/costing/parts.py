"""Run each part as a user does: its command, its file, and a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import psycopg

from benchmarks import harness, pushed
from dovecote.devstack import Stack
from dovecote.devstack.places import free_port
from dovecote.push.rules.subscription.subscription import subscription
from dovecote.push.store import schema as push_schema
from dovecote.push.store.secrets import Keys
from dovecote.push.store.store import Store
from dovecote.push.store.tables import Tables

HANDLED = "handled.txt"
"""The file in which the handler notes when it got each event, on the machine's monotonic clock."""

_SECRET = "COSTS"  # noqa: S105  # the name of one

_HANDLER = f"""
import time

def handle(event):
    with open({HANDLED!r}, "a", encoding="utf-8") as out:
        out.write(f"{{time.monotonic()}}\\n")
"""

_KAFKA = '[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'

_RELAY = 'name = "{topic}"\ncapture = "{capture}"\nretention = "{retention}"\n' + _KAFKA

_CONSUMER = (
    'group = "{topic}"\ntopics = ["{topic}"]\nhandler = "costs_handler:handle"\nvalue = "raw"\n'
    "processes = {processes}\n[http]\nport = {port}\n" + _KAFKA
)

_PUSH = """
allow_addresses = ["127.0.0.0/8"]
processes = {processes}
[http]
port = {port}
[brokers.default]
"bootstrap.servers" = "{bootstrap}"
"""

_WATCH = """
[sources.outbox.bench]
dsn = {{ env = "COSTS_DSN" }}
name = "{topic}"
retention = "{retention}"
[sources.consumer.bench]
group = "{topic}"
topics = ["{topic}"]
[console]
state = "console"
[console.http]
port = {port}
[audit]
state = "audit.sqlite3"
statements = "statements.jsonl"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part works: its servers, its topic, and the folder of its files."""

    stack: Stack
    dsn: str
    topic: str
    folder: Path
    retention: str = "0s"
    capture: str = "table"


@dataclass(frozen=True, slots=True)
class Running:
    """A part that runs, and where it answers."""

    pid: int
    port: int

    def is_ready(self) -> bool:
        """Return whether the part, and each process of it, says that it does its work."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=30) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Part:
    """A long-running command of `dovecote`, and its settings file."""

    name: str
    words: tuple[str, ...]
    text: str
    processes: int = 1

    def settings(self, at: Place, port: int) -> str:
        """Return the text of its file at `at`, with a port to answer on."""
        return self.text.format(
            topic=at.topic,
            bootstrap=at.stack.kafka.bootstrap,
            processes=self.processes,
            port=port,
            retention=at.retention,
            capture=at.capture,
        )


PARTS: Mapping[str, Part] = {
    each.name: each
    for each in (
        Part("relay", ("relay", "run"), _RELAY),
        Part("consumer", ("consume", "run"), _CONSUMER),
        Part("consumer, processes = 2", ("consume", "run"), _CONSUMER, processes=2),
        Part("push", ("push", "serve"), _PUSH),
        Part("push, processes = 2", ("push", "serve"), _PUSH, processes=2),
        Part("console", ("console",), _KAFKA + _WATCH),
        Part("audit", ("audit",), _KAFKA + _WATCH),
    )
}
"""The parts by their names in the results."""


def prepare(stack: Stack, folder: Path, *, capture: str = "table", retention: str = "0s") -> Place:
    """Make a database with the tables of the outbox and of push, a topic, and a handler."""
    dsn = harness.database(stack, capture)
    with psycopg.connect(dsn) as conn:
        push_schema.install(conn)
    (folder / "costs_handler.py").write_text(_HANDLER, encoding="utf-8")
    return Place(stack, dsn, harness.topic(stack), folder, retention, capture)


def subscribe(at: Place, url: str) -> None:
    """Store a subscription of the topic: signed, in order per key."""
    wanted = pushed.subscription("costs", at.topic, url, 64)
    wanted["signing"] = {"secrets": [f"env:{_SECRET}"]}
    Store(Tables(at.dsn), Keys("")).create(subscription(wanted))


@contextmanager
def running(part: Part, at: Place, environ: Mapping[str, str] = os.environ) -> Iterator[Running]:
    """Run a part; it ends gracefully with the block."""
    port = free_port()
    file = at.folder / f"{part.words[0]}.toml"
    file.write_text(part.settings(at, port), encoding="utf-8")
    command = [str(Path(sys.executable).with_name("dovecote")), *part.words, "-c", str(file)]
    secrets = dict.fromkeys(("DOVECOTE_RELAY_DSN", "DOVECOTE_PUSH_DSN", "COSTS_DSN"), at.dsn)
    secrets[f"PUSH_SECRET_{_SECRET}"] = pushed.SECRET
    log_file = at.folder / "log.txt"
    with log_file.open("w+b") as log:
        process = subprocess.Popen(
            command,
            cwd=at.folder,
            env={**environ, **secrets},
            stdout=log,
            stderr=log,
        )
        try:
            yield Running(process.pid, port)
        finally:
            process.terminate()
            if process.wait(60) != 0:
                print(log_file.read_text(encoding="utf-8"), file=sys.stderr)
