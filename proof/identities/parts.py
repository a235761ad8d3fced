"""The parts that are proved, each a command with settings that name one identity."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from dovecote.devstack.kafka.java import java
from dovecote.devstack.places import LOOPBACK, free_port
from dovecote.push.api.access import hashed
from outbox.errors import DovecoteError
from proof.identities.handler import NOTES
from proof.identities.provider import SECRET

TOPIC, DEDUPED = "proof-orders", "proof-orders-once"
GROUP = "proof"
_TOKEN = "let-me-in"  # noqa: S105  # of this proof
_ASK_SECONDS, _END_SECONDS, _LOOK_SECONDS = 5.0, 60.0, 0.25
# Spark takes minutes to begin on a busy machine.
_START_SECONDS = 420.0


class Ended(DovecoteError):
    """A part ended by itself."""


@dataclass(frozen=True, slots=True)
class Looks:
    """The answers of a part's `/readyz`, with their times."""

    said: list[tuple[float, bool, str]] = field(default_factory=list)

    def unready(self, since: float, until: float) -> float:
        """Return for how many seconds it was not ready in a time."""
        seconds = 0.0
        for (at, ok, _), (after, _, _) in zip(self.said, self.said[1:], strict=False):
            if not ok and since <= at < until:
                seconds += after - at
        return seconds

    def named(self, text: str) -> bool:
        return any(text in reason for _, _, reason in self.said)


class Part:
    """One command that runs, and what `/readyz` says of it."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environ: Mapping[str, str]
    ) -> None:
        self.name, self.port, self.restarts = name, free_port(), 0
        self.looks = Looks()
        self.log = folder / f"{name}.log"
        config = folder / f"{name}.toml"
        config.write_text(config.read_text().replace("PORT", str(self.port)), encoding="utf-8")
        own = str(Path(sys.executable).with_name("dovecote"))
        self._command = [own, *command, "--config", str(config)]
        self._environ, self._folder = {**os.environ, **environ}, folder
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as out:
            return subprocess.Popen(
                self._command,
                env=self._environ,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )

    def look(self) -> bool:
        """
        Ask whether it is ready, and keep the answer.

        Raises:
            Ended: it runs no more.
        """
        if self.process.poll() == 1 and self.name == "spark":
            # A job ends while Kafka is away, and its supervisor starts it again.
            self.restarts += 1
            self.process = self._started()
        if self.process.poll() is not None:
            msg = f"{self.name} ended with {self.process.returncode}: {self.log}"
            raise Ended(msg)
        try:
            with urlopen(f"http://{LOOPBACK}:{self.port}/readyz", timeout=_ASK_SECONDS) as answer:
                ok, said = True, answer.read().decode()
        except HTTPError as error:
            with error:
                ok, said = False, error.read().decode()
        except OSError as error:
            ok, said = False, str(error)
        self.looks.said.append((time.time(), ok, said))
        return ok

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(_END_SECONDS)


class Endpoint:
    """Takes the deliveries of push, and notes what it gets, and when."""

    def __init__(self) -> None:
        self.notes: list[tuple[float, str]] = []
        notes = self.notes

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                id_ = self.headers.get("webhook-id", "").rpartition("@")[0]
                notes.append((time.time(), id_))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@dataclass(frozen=True, slots=True)
class Crew:
    """All parts of a run, and where each of them leaves its traces."""

    parts: Mapping[str, Part]
    notes: Path
    endpoint: Endpoint

    def handled(self) -> list[tuple[float, str]]:
        """Return what the consumer has noted."""
        if not self.notes.exists():
            return []
        lines = self.notes.read_text(encoding="utf-8").splitlines()
        return [(float(at), id_) for at, _, id_ in (line.partition(" ") for line in lines) if id_]


@contextmanager
def crew(
    folder: Path, dsn: str, kafka: Mapping[str, str], identity: Mapping[str, Any], *, spark: bool
) -> Iterator[Crew]:
    """Start every part, yield them once all are ready, and end them."""
    notes = folder / "handled"
    files = _files(dict(kafka), {**identity, "client_secret": {"env": "IDP_SECRET"}}, folder)
    for name, tables in files.items():
        (folder / f"{name}.toml").write_text(_toml(tables), encoding="utf-8")
    commands = {
        "relay": ("relay", "run"),
        "standby": ("relay", "run"),
        "consumer": ("consume", "run"),
        "push": ("push", "serve"),
        **({"spark": ("spark", "dedup", "--master", "local[2]")} if spark else {}),
    }
    environ = {
        "PROOF_DSN": dsn,
        "IDP_SECRET": SECRET,
        NOTES: str(notes),
        **(java().environment() if spark else {}),
    }
    parts: dict[str, Part] = {}
    with Endpoint() as endpoint:
        try:
            for name, command in commands.items():
                parts[name] = Part(name, command, folder, environ)
            await_ready([parts["push"]], _START_SECONDS)
            subscribe(parts["push"].port, endpoint.url)
            await_ready(list(parts.values()), _START_SECONDS)
            yield Crew(parts, notes, endpoint)
        finally:
            for part in parts.values():
                part.end()


def await_ready(parts: Sequence[Part], seconds: float) -> None:
    """
    Wait until all are ready.

    Raises:
        Ended: one has ended, or is not ready in time.
    """
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not all([part.look() for part in parts]):  # noqa: C419  # each is asked
        if time.monotonic() > deadline:
            late = [f"{part.name} ({part.looks.said[-1][2]})" for part in parts if not part.look()]
            msg = f"not ready within {seconds:g} s: {', '.join(late)}"
            raise Ended(msg)
        pause.wait(_LOOK_SECONDS)


def subscribe(port: int, url: str) -> None:
    """Have push deliver the topic to `url`."""
    body = {"id": "proof", "topics": [TOPIC], "endpoint": {"url": url}}
    request = Request(
        f"http://{LOOPBACK}:{port}/subscriptions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {_TOKEN}", "Content-Type": "application/json"},
    )
    with urlopen(request, timeout=_ASK_SECONDS) as answer:  # noqa: S310  # of our own
        answer.read()


def _files(
    kafka: dict[str, str], identity: Mapping[str, Any], folder: Path
) -> dict[str, dict[str, Any]]:
    own = {**kafka, "identity": identity}
    http = {"http": {"port": "PORT"}}
    relay = {
        "dsn": {"env": "PROOF_DSN"},
        "standby_poll": "200ms",
        "transaction_timeout": "10s",
        **http,
        "kafka": own,
    }
    return {
        "relay": relay,
        "standby": relay,
        "consumer": {
            "topics": [TOPIC],
            "group": GROUP,
            "policy": "every",
            "handler": "proof.identities.handler:handle",
            "start": "earliest",
            "commit_every": "500ms",
            **http,
            "kafka": own,
        },
        "push": {
            "dsn": {"env": "PROOF_DSN"},
            "allow_addresses": ["127.0.0.0/8"],
            "poll": "500ms",
            **http,
            "brokers": {"default": own},
            "api": {"tokens": {"proof": hashed(_TOKEN)}},
        },
        "spark": {
            "kafka": own,
            "source": {"topics": [TOPIC]},
            "operator": {"type": "exact"},
            "output": {
                "topic": DEDUPED,
                "retry_topic": f"{DEDUPED}-retry",
                "dead_letter_topic": f"{DEDUPED}-dead",
            },
            "spark": {
                "query": "proof",
                "checkpoint": str(folder / "checkpoint"),
                "shuffle_partitions": 2,
                "trigger": "1s",
            },
            **http,
        },
    }


def _toml(tables: Mapping[str, Any]) -> str:
    """Return settings as TOML: plain values first, then tables."""
    lines = [f"{json.dumps(k)} = {_inline(v)}" for k, v in tables.items() if not _is_table(v)]
    for name, fields in tables.items():
        if _is_table(fields):
            lines.append(f"[{name}]")
            lines += [f"{json.dumps(k)} = {_inline(v)}" for k, v in fields.items()]
    return "\n".join(lines).replace('"PORT"', "PORT") + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and "env" not in value


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_inline(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)
