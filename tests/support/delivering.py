"""Run push engines in tests, against an endpoint that answers as configured."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import psycopg

from dovecote.push.delivery.engine import Engine, HeldIn, Surroundings
from dovecote.push.rules.sending.addresses import networks
from dovecote.push.rules.sending.ports import AttemptReport, DeliveryReport, Work
from dovecote.push.rules.subscription.subscription import subscription
from dovecote.push.store import schema
from tests.support.consuming import committed, end_of
from tests.support.waiting import patient, until


@dataclass(frozen=True)
class Request:
    """A request as the endpoint received it."""

    method: str
    target: str
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes
    at: float
    """On the monotonic clock."""
    connection: int

    @property
    def event_id(self) -> str:
        """The event's id, in its `webhook-id`."""
        return self.headers["webhook-id"].rpartition("@")[0]


@dataclass(frozen=True)
class Reply:
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: float = 0.0
    keep: bool = True


Answer = Callable[[Request], Reply | None]


class Endpoint:
    """An HTTP server in a thread; None for an answer closes the connection without one."""

    def __init__(self, answer: Answer = lambda _: Reply()) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.in_flight = self.most_in_flight = self.connections = 0
        self.gate = threading.Event()
        """While this is set, requests are answered."""
        self.gate.set()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(patient(10))
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._loop.call_soon_threadsafe(self._ends.set_result, None)
        self._thread.join(patient(10))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[str]:
        return [request.body.decode() for request in self.requests]

    def has_got(self, number: int, *, within: float = 20) -> None:
        until(lambda: len(self.requests) >= number, within=within, what=f"{number} requests")

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._ends = self._loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._begin, "127.0.0.1", self.port, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._ends
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = self._loop.create_task(self._connection(reader, writer, self.connections))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        try:
            while (request := await _read(reader, number)) is not None:
                self.requests.append(request)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    while not self.gate.is_set():  # noqa: ASYNC110  # set by another thread
                        await asyncio.sleep(0.005)
                    reply = self.answer(request)
                    if reply is None:
                        return
                    await asyncio.sleep(reply.after)
                finally:
                    self.in_flight -= 1
                writer.write(_written(reply, request))
                await writer.drain()
                if not reply.keep:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the other side has gone
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, number: int) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, time.monotonic(), number)


def _written(reply: Reply, request: Request) -> bytes:
    headers = {"Content-Length": str(len(reply.body)), **reply.headers}
    if reply.status == 204:
        del headers["Content-Length"]
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    body = b"" if request.method == "HEAD" else reply.body
    return f"HTTP/1.1 {reply.status} Told\r\n{lines}\r\n".encode() + body


@dataclass
class Noted:
    """A journal that keeps everything."""

    attempts: list[AttemptReport] = field(default_factory=list)
    disabled: dict[str, str] = field(default_factory=dict)

    def attempted(self, attempt: AttemptReport) -> None:
        self.attempts.append(attempt)

    def disable(self, id_: str, url: str, reason: str) -> None:
        self.disabled[id_] = f"{url}: {reason}"


@dataclass
class Pushing:
    """A running engine, and its journal."""

    engine: Engine
    book: Noted

    def snapshot(self, id_: str) -> DeliveryReport:
        return self.engine.snapshot()[id_]


def group(name: str) -> str:
    return f"dovecote.push.{name}"


def is_committed(kafka: str, topic: str, partition: int, id_: str) -> bool:
    found, _ = committed(kafka, topic, partition, group=group(id_))
    return found == end_of(kafka, topic, partition)


def all_committed(kafka: str, topic: str, partition: int = 0, *, id_: str | None = None) -> None:
    until(
        partial(is_committed, kafka, topic, partition, id_ or topic),
        within=20,
        what="all records are committed",
    )


def subscribed(topic: str, url: str, **given: Any) -> Work:
    """Return a subscription named like the topic; `endpoint` and others add to its settings."""
    endpoint = {"url": url, **given.pop("endpoint", {})}
    source = {} if given.keys() & {"partitions", "pattern"} else {"topics": [topic]}
    version = given.pop("version", 1)
    return Work(subscription({"id": topic, "endpoint": endpoint, **source, **given}), version)


@contextmanager
def pushing(
    bootstrap: str,
    *work: Work,
    held: HeldIn | None = None,
    brokers: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[Pushing]:
    """Run an engine that delivers `work`, until the end of the block."""
    book = Noted()
    # The shortest that a broker accepts, so that a killed process soon loses what it had.
    session = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
    surroundings = Surroundings(
        brokers={"default": {"bootstrap.servers": bootstrap, **session}, **(brokers or {})},
        allow_addresses=networks(["127.0.0.0/8"]),
        held=held,
    )
    engine = Engine(surroundings, book)
    engine.start()
    engine.reconcile(work)
    try:
        yield Pushing(engine, book)
    finally:
        engine.stop()


def member() -> None:
    """Act as a push process with one subscription until the end of the input: `python -c`."""
    told = json.loads(sys.argv[1])
    work = subscribed(told["topic"], told["url"], **told["given"])
    with pushing(told["bootstrap"], work):
        print("up", flush=True)  # noqa: T201  # for the process that waits for it
        sys.stdin.read()


def first_attempts(endpoint: Endpoint) -> dict[str, list[int]]:
    """Return, by key, the numbers of the records in the order in which they first succeeded."""
    found: dict[str, list[int]] = {}
    for request in endpoint.requests:
        key, _, number = request.event_id.rpartition("-")
        found.setdefault(key, []).append(int(number))
    return found


def install_held(dsn: str) -> HeldIn:
    with psycopg.connect(dsn) as conn:
        schema.install(conn, "push_held")
    return HeldIn(dsn=dsn, schema="push_held")


def kept(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM push_held.held").fetchone()
    assert row is not None
    return int(row[0])
