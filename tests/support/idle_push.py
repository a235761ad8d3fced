"""Shared parts of push's tests: its tables, an engine that delivers nothing, and a client."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, NamedTuple

import psycopg
from cryptography.fernet import Fernet
from prometheus_client import CollectorRegistry

from dovecote.process.http.server import App
from dovecote.push.api.access import hashed
from dovecote.push.process import Running, running
from dovecote.push.rules.sending.ports import AttemptReport, Book, Delivers, DeliveryReport, Work
from dovecote.push.settings import PushSettings
from dovecote.push.store import schema
from tests.support.waiting import patient

KEY = Fernet.generate_key().decode()

TOKEN = "of-the-tests"  # noqa: S105  # as it says

LEAST: dict[str, Any] = {
    "id": "slack",
    "topics": ["flights"],
    "endpoint": {"url": "https://hooks.example/x"},
}


class Idle:
    """An engine that accepts work and does none."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.work: Mapping[str, Work] = {}
        self.says: dict[str, DeliveryReport] = {}
        """The reports on some subscriptions; all others are well."""
        self.stopped = threading.Event()

    def start(self) -> None:
        """Do nothing: there is nothing to start."""

    def stop(self) -> None:
        self.stopped.set()

    def reconcile(self, work: Sequence[Work]) -> None:
        self.work = {each.subscription.id: each for each in work}

    def snapshot(self) -> Mapping[str, DeliveryReport]:
        return {
            id_: self.says.get(
                id_, DeliveryReport(running=True, in_flight=3, lag=7, p50_ms=1.5, p99_ms=9.0)
            )
            for id_ in self.work
        }


class Answer(NamedTuple):
    """The API's answer."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Client:
    """Sends requests to the API."""

    def __init__(self, port: int, token: str | None = TOKEN) -> None:
        self._port, self._token = port, token

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token is not None:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        data = None
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self._port, timeout=patient(40))
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return Answer(
            answer.status, json.loads(text) if is_json else text.decode(), dict(answer.headers)
        )


@contextmanager
def installed(dsn: str) -> Iterator[str]:
    """Install the tables in a database."""
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
    yield dsn


def push_settings(dsn: str, bootstrap: str, **changes: Any) -> PushSettings:
    """Return settings of a process on any free port."""
    return PushSettings.model_validate(
        {
            "dsn": {"env": "DSN"},
            "brokers": {"default": {"bootstrap.servers": bootstrap}},
            "http": {"port": 0},
            "poll": "200ms",
            "secrets": {"keys": {"env": "KEYS"}},
            "api": {"tokens": {"tests": hashed(TOKEN)}},
            **changes,
        },
        context={"environ": {"DSN": dsn, "KEYS": KEY}},
    )


@contextmanager
def idle(
    settings: PushSettings, *, around: Callable[[App], App] | None = None, **environ: str
) -> Iterator[tuple[Running, Idle]]:
    """Run a process whose engine is idle; `around` as for `running`."""
    made: list[Idle] = []

    def make(book: Book) -> tuple[Delivers, CollectorRegistry]:
        made.append(Idle(book))
        return made[0], CollectorRegistry()

    with running(settings, make, environ, around=around) as found:
        yield found, made[0]


def attempt(id_: str, number: int) -> AttemptReport:
    """Return an attempt with text that Postgres would not take."""
    return AttemptReport(
        subscription=id_,
        event_id=f"e{number}",
        topic="t",
        partition=0,
        offset=number,
        key="k\0",
        number=1,
        at=1e9,
        seconds=0.01,
        status=200 if number % 2 == 0 else 500,
        outcome="delivered" if number % 2 == 0 else "retry",
        detail="<b>no\udcff\0",
    )
