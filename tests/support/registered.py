"""A schema registry with schemas and values for it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order", "type": "int"}, {"name": "state", "type": "string"}],
}


JSON_SCHEMA = {
    "title": "Order",
    "type": "object",
    "properties": {"order": {"type": "integer"}, "state": {"type": "string"}},
    "required": ["order"],
}


VALUE = {"order": 42, "state": "placed"}


ID = 1_000
GUID = "89791762-2336-4186-9674-299b90a802e2"


class Registry(ThreadingHTTPServer):
    """A schema registry that registers everything under one id."""

    def __init__(self) -> None:
        self.registered: list[tuple[str, dict[str, Any]]] = []
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(BaseHTTPRequestHandler):
    server: Registry

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.registered.append((self.path.partition("?")[0], asked))
        self._say(200, {"id": ID, "guid": GUID, "version": 1, **asked})

    def do_GET(self) -> None:
        if self.path.startswith(f"/schemas/ids/{ID}"):
            _, newest = self.server.registered[-1]
            self._say(200, {"id": ID, "guid": GUID, "version": 1, **newest})
        else:
            if found := [
                (number, asked)
                for number, (path, asked) in enumerate(self.server.registered, 1)
                if self.path.partition("?")[0] == f"{path}/latest"
            ]:
                number, newest = found[-1]
                self._say(200, {"id": ID, "guid": GUID, "version": number, **newest})
                return
            if self.path.partition("?")[0].endswith("/versions/latest"):
                self._say(404, {"error_code": 40401, "message": "Subject not found."})
                return
            # The question whether a subject other than the topic's own is associated with it:
            # there is none.
            self._say(404, {"error_code": 404, "message": f"nothing at {self.path}"})

    def _say(self, status: int, what: dict[str, Any]) -> None:
        said = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def answering(status: int, said: str) -> Iterator[str]:
    """Yield the URL of a server that says the same to everybody."""

    class Same(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said.encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Same) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
