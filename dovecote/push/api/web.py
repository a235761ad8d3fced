"""Serve the API together with the page, /metrics, /healthz and /readyz."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files

import uvicorn
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.types import ASGIApp

from dovecote.push.api.routing import router
from outbox.errors import BadSettings, DovecoteError

_START_SECONDS = 10.0
_END_SECONDS = 5

_PAGE_HEADERS = {
    # The page shows answers from strangers' endpoints: none of their content may run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def page() -> APIRouter:
    """Return the operators' page; it calls the API with the token that is typed into it."""
    routes = router()
    folder = files("dovecote.push").joinpath("page")
    for path, name in (("/", "page.html"), ("/page.css", "page.css"), ("/page.js", "page.js")):
        kind = f"{_KINDS[name.rpartition('.')[2]]}; charset=utf-8"
        routes.add_api_route(path, _file(folder.joinpath(name).read_bytes(), kind))
    return routes


def _file(content: bytes, kind: str) -> Callable[[], Response]:
    return lambda: Response(content, media_type=kind, headers=_PAGE_HEADERS)


def state(registry: CollectorRegistry, failure: Callable[[], str]) -> APIRouter:
    """Return the endpoints for machines: metrics, liveness and readiness."""
    routes = router()

    @routes.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @routes.get("/healthz")
    def healthz() -> JSONResponse:
        # Alive means that the process answers: an outage is no reason to restart it.
        return JSONResponse({"ok": True})

    @routes.get("/readyz")
    def readyz() -> JSONResponse:
        why = failure()
        return JSONResponse({"ok": not why, "reason": why}, 503 if why else 200)

    return routes


@dataclass(frozen=True, slots=True)
class Listening:
    """The address of the server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@contextmanager
def served(app: ASGIApp, host: str, port: int) -> Iterator[Listening]:
    """
    Serve in the background, and yield the address: with the given port, or any free one for 0.

    Raises:
        BadSettings: the address cannot be listened on.
    """
    with _bound(host, port) as bound:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="h11",  # the same, whether or not another parser is installed
            server_header=False,
            # Any client could say that it is another one: the audit log has what it says apart.
            proxy_headers=False,
            timeout_graceful_shutdown=_END_SECONDS,
            limit_concurrency=200,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, kwargs={"sockets": [bound]}, name="push-http", daemon=True
        )
        thread.start()
        try:
            _wait_for(server, thread)
            yield Listening(host, bound.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


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
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        msg = (
            f"cannot serve on {host}:{port} ({error.strerror}); end what listens there, or set "
            "`http.port` (and `http.host`) to where nothing does"
        )
        raise BadSettings(msg) from error
