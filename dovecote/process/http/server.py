"""Serve an application over HTTP, with /metrics, /healthz and /readyz in front of it."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeAlias

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from dovecote.process.health import Ready
from dovecote.process.http.connections import Bounds, Connections
from dovecote.process.http.hosts import Hosts, is_loopback
from dovecote.process.http.safe_headers import SAFE
from outbox.errors import BadSettings, DovecoteError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_START_SECONDS = 10.0
_END_SECONDS = 5

# A loop accepts this many connections before it looks at any of them, and needs four turns to end
# one: so many descriptors are in use beyond the bound.
_ACCEPTED_AT_ONCE = 8
# Connections that wait in the kernel have no descriptor.
_BACKLOG = 512

_MOST_SCRAPES = 16
_BUSY = "too many requests at a time: ask again later"
_LATER = {"connection": "close", "retry-after": "1"}


@contextmanager
def serve(
    app: App,
    host: str,
    port: int,
    *,
    hosts: Sequence[str],
    bounds: Bounds,
    health: Ready,
    numbers: Collector | None,
) -> Iterator[int]:
    """
    Serve in the background and yield the port: the given one, or any free one for 0.

    `hosts` are the names under which requests may ask for it, besides the machine's own. Without
    `numbers`, /metrics is the application's.

    Raises:
        BadSettings: the address cannot be listened on.
    """
    connections = Connections(bounds)
    named = Hosts.of(host, hosts, "" if is_loopback(host) else socket.gethostname())
    front = _Front(app, named, connections, health=health, numbers=numbers)
    with _bound(host, port) as bound:
        config = uvicorn.Config(
            front,
            http=connections.protocol(),
            ws="none",
            # The same, whether or not another loop is installed: it accepts in small portions.
            loop="asyncio",
            backlog=_ACCEPTED_AT_ONCE,
            lifespan="off",
            log_config=None,
            # A client could fill the log with warnings about its requests.
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_END_SECONDS,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [bound]}, name="http", daemon=True
        )
        thread.start()
        try:
            _wait_for(server, thread)
            bound.listen(_BACKLOG)
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


async def answer(
    send: Send,
    status: int,
    body: bytes,
    *,
    kind: str = "application/json",
    more: Mapping[str, str] | None = None,
) -> None:
    """Send a whole answer."""
    headers = {
        "content-type": kind,
        "content-length": str(len(body)),
        **{name.lower(): value for name, value in SAFE.items()},
        **(more or {}),
    }
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, why: str, more: Mapping[str, str] | None = None) -> None:
    """Answer with an error, in the form of the API of push."""
    await answer(send, status, json.dumps({"error": why, "problems": []}).encode(), more=more)


class _Front:
    """
    Answers probes, and hands other requests on: those for our hosts, and only so many at a time.

    Probes are answered although that many requests are under way.
    """

    def __init__(
        self,
        app: App,
        hosts: Hosts,
        connections: Connections,
        *,
        health: Ready,
        numbers: Collector | None,
    ) -> None:
        self._app, self._hosts, self._connections = app, hosts, connections
        self._health, self._numbers = health, numbers
        self._shown: asyncio.Future[bytes] | None = None
        self._scrapes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, found = scope["path"], dict(scope["headers"])
        host, origin = (_text(found.get(name)) for name in (b"host", b"origin"))
        if path == "/healthz":
            # Alive means that the process answers: an outage is no reason to restart it. Nothing
            # else is said, so any host will do.
            await _probe(scope, send, 200, b'{"ok":true}')
        elif refusal := self._hosts.refusal(host, origin):
            await refuse(send, 403, refusal, {"connection": "close"})
        elif path == "/readyz":
            report = self._health.ready()
            await _probe(
                scope, send, 200 if report.ok else 503, json.dumps(asdict(report)).encode()
            )
        elif path == "/metrics" and self._numbers is not None:
            await self._scrape(scope, send, self._numbers)
        elif self._connections.begin():
            try:
                await self._app(scope, receive, send)
            finally:
                self._connections.done()
        else:
            await refuse(send, 503, _BUSY, _LATER)

    async def _scrape(self, scope: Scope, send: Send, numbers: Collector) -> None:
        """Answer with the metrics; scrapes at the same time share one text."""
        if self._scrapes >= _MOST_SCRAPES:
            await refuse(send, 503, _BUSY, _LATER)
            return
        if self._shown is None or self._shown.done():
            loop = asyncio.get_running_loop()
            self._shown = loop.run_in_executor(None, generate_latest, numbers)
        self._scrapes += 1
        try:
            text = await asyncio.shield(self._shown)
        finally:
            self._scrapes -= 1
        await _probe(scope, send, 200, text, kind=CONTENT_TYPE_LATEST)


async def _probe(
    scope: Scope, send: Send, status: int, body: bytes, *, kind: str = "application/json"
) -> None:
    if scope["method"] in {"GET", "HEAD"}:
        await answer(send, status, body, kind=kind)
    else:
        await refuse(send, 405, "only GET and HEAD", {"allow": "GET, HEAD"})


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


def _wait_for(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline, pause = time.monotonic() + _START_SECONDS, threading.Event()
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            msg = "the HTTP server did not start"
            raise DovecoteError(msg)
        pause.wait(0.01)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        msg = (
            f"cannot serve on {host}:{port} ({error.strerror}); end what listens there, or set "
            "`http.port` (and `http.host`) to where nothing does"
        )
        raise BadSettings(msg) from error
