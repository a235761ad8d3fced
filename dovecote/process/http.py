"""Serve /metrics, /healthz and /readyz of any process."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from dovecote.process.health import HealthReport
from dovecote.process.safe_headers import SAFE
from dovecote.process.settings import HttpSettings
from outbox.errors import BadSettings

_log = logging.getLogger("dovecote.http")


class Ready(Protocol):
    """Reports whether a process does its job."""

    def ready(self) -> HealthReport: ...


@contextmanager
def served(
    settings: HttpSettings, health: Ready, numbers: Collector, log: logging.Logger
) -> Iterator[None]:
    """
    Serve in the background where the settings say, which is nowhere if they name no port.

    Raises:
        BadSettings: the address cannot be listened on.
    """
    if settings.port is None:
        yield
        return
    with serve(settings.host, settings.port, health, numbers) as port:
        log.info("serving /metrics, /healthz, /readyz on %s:%d", settings.host, port)
        yield


@contextmanager
def serve(host: str, port: int, health: Ready, numbers: Collector) -> Iterator[int]:
    """
    Serve in the background and yield the port: the given one, or any free one for 0.

    Raises:
        BadSettings: the address cannot be listened on.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    self._answer(200, generate_latest(numbers), CONTENT_TYPE_LATEST)
                case "/healthz":
                    # Alive means that the process answers: an outage is no reason to restart it.
                    self._answer(200, b'{"ok":true}')
                case "/readyz":
                    report = health.ready()
                    body = json.dumps(asdict(report)).encode()
                    self._answer(200 if report.ok else 503, body)
                case _:
                    self._answer(404, b'{"error":"try /metrics, /healthz or /readyz"}')

        def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in SAFE.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            _log.debug(format, *args)

    class _Server(ThreadingHTTPServer):
        daemon_threads = True

    try:
        opened = _Server((host, port), Handler)
    except OSError as error:
        msg = (
            f"cannot serve on {host}:{port} ({error.strerror}); end what listens there, or set "
            "`http.port` (and `http.host`) to where nothing does"
        )
        raise BadSettings(msg) from error
    with opened as server:
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
