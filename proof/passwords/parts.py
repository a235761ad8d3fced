"""The parts under proof, each a process with a role whose password changes."""

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from dovecote.demo.children import Child, dovecote
from dovecote.devstack.places import free_port
from dovecote.push.api.access import hashed

TOKEN = "of-the-proof"  # noqa: S105  # of a process that ends with the proof
_ASK_SECONDS, _PROBE_SECONDS = 2.0, 0.05


@dataclass(frozen=True, slots=True)
class Place:
    """Where the servers are, and where the password is."""

    folder: Path
    host: str
    port: str
    dbname: str
    bootstrap: str
    secret: Path

    def dsn(self, role: str, pointer: str) -> str:
        """Return the table `dsn` of a part."""
        where = {"host": self.host, "port": self.port, "dbname": self.dbname, "user": role}
        lines = [f"{name} = {json.dumps(value)}" for name, value in where.items()]
        return "\n".join(["[dsn]", *lines, f"password = {pointer}", ""])

    @property
    def from_file(self) -> str:
        """A pointer to the password, which is read at each connection."""
        return f"{{ file = {json.dumps(str(self.secret))} }}"

    @property
    def from_command(self) -> str:
        """A pointer to a command whose output is kept for longer than the password lasts."""
        return f'{{ command = ["cat", {json.dumps(str(self.secret))}], every = "1h" }}'


class Part:
    """One process, and how long it was not ready."""

    def __init__(self, place: Place, name: str, command: Sequence[str], settings: str) -> None:
        """Start it; `settings` may contain `{port}`, the port of its HTTP server."""
        self.name, self._port = name, free_port()
        config = place.folder / f"{name}.toml"
        config.write_text(settings.replace("{port}", str(self._port)), encoding="utf-8")
        argv = [each.replace("{config}", str(config)) for each in command]
        self.child = Child(name, dovecote(*argv), place.folder / f"{name}.log")
        self.longest = 0.0
        """The longest time for which `/readyz` answered with anything but 200, in seconds."""

    def is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=_ASK_SECONDS) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except (OSError, HTTPException):
            return False

    def post(self, path: str, body: Mapping[str, Any]) -> None:
        """Post to its API."""
        request = Request(  # our own process
            f"http://127.0.0.1:{self._port}{path}",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )
        with urlopen(request, timeout=30):  # noqa: S310  # as above
            pass

    def watch(self, done: threading.Event) -> None:
        """Measure how long it is not ready, until `done`."""
        since: float | None = None
        while not done.wait(_PROBE_SECONDS):
            asked = time.monotonic()
            if self.is_ready():
                since = None
            else:
                since = asked if since is None else since
                self.longest = max(self.longest, time.monotonic() - since)


def relay(place: Place, name: str, *, capture: str, schema: str, pointer: str, turn: int) -> Part:
    """Start a relay; those of one name share the work of one outbox."""
    text = (
        f'name = "{name}"\ncapture = "{capture}"\nschema = "{schema}"\nstandby_poll = "200ms"\n'
        + _http()
        + f'[kafka]\n"bootstrap.servers" = "{place.bootstrap}"\n'
        + place.dsn("proof_relay", pointer)
    )
    command = ["relay", "run", "--config", "{config}"]
    return Part(place, f"relay-{schema}-{turn}", command, text)


def consumer(place: Place, topic: str, pointer: str) -> Part:
    """Start a consumer with an inbox."""
    inbox = place.dsn("proof_consumer", pointer).replace("[dsn]", "[inbox.dsn]")
    text = (
        f'group = "{topic}-consumer"\ntopics = ["{topic}"]\n'
        + _http()
        + f'[kafka]\n"bootstrap.servers" = "{place.bootstrap}"\n'
        + inbox
    )
    handler = "proof.passwords.handler:handle"
    return Part(
        place, "consumer", ["consume", "run", "--handler", handler, "--config", "{config}"], text
    )


def push(place: Place, pointer: str) -> Part:
    """Start push."""
    text = (
        'allow_addresses = ["127.0.0.0/8"]\n'
        + _http()
        + f'[brokers.default]\n"bootstrap.servers" = "{place.bootstrap}"\n'
        + f'[api.tokens]\nproof = "{hashed(TOKEN)}"\n'
        + place.dsn("proof_push", pointer)
    )
    return Part(place, "push", ["push", "serve", "--config", "{config}"], text)


def _http() -> str:
    return "[http]\nport = {port}\n"
