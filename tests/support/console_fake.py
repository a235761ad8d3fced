"""A server that answers as the console's does, from values that a test sets."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import dovecote
from tests.support import console_flows as flows

PAGE = Path(dovecote.__file__).parent / "console" / "page"

POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Fake:
    """Holds what the server says. A test changes it while a browser looks."""

    def __init__(self) -> None:
        self.flow = flows.well()
        self.letters = flows.letters()
        self.rights = ["read", "write"]
        self.token = ""
        self.away = False
        self.lost: list[str] = []
        self.refuses: dict[str, tuple[int, flows.Json]] = {}
        self.outcome: flows.Json | None = None
        self.asked: list[str] = []
        self.posted: list[tuple[str, Any]] = []
        self.url = ""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, flows.Json]:
        """Return the status and the body of a GET."""
        if path in self.refuses:
            return self.refuses[path]
        said: dict[str, Callable[[], flows.Json]] = {
            "/api/flow": lambda: self.flow,
            "/api/me": lambda: {
                "name": "ada",
                "rights": self.rights,
                "needs_token": bool(self.token),
            },
            "/api/part": lambda: flows.part(query["id"], self.flow),
            "/api/history": lambda: flows.history(int(query["minutes"])),
            "/api/find": lambda: flows.life(query.get("id", "")),
            "/api/log": flows.log,
            "/api/dead": lambda: self._page(query),
        }
        if path not in said:
            return 404, {"error": f"there is no {path}", "todo": ""}
        return 200, said[path]()

    def file(self, name: str) -> tuple[int, bytes, str]:
        """Return the status, the content and the kind of a file of the page."""
        file = PAGE / name
        if name in self.lost:
            self.lost.remove(name)
            return 503, b"", "text/plain"
        if file.parent == PAGE and file.is_file():
            return 200, file.read_bytes(), _KINDS[file.suffix]
        return 404, b"", "text/plain"

    def _page(self, query: dict[str, str]) -> flows.Json:
        found = [each for each in self.letters if query.get("part", each["part"]) == each["part"]]
        begin, limit = int(query.get("after", "0")), int(query.get("limit", "100"))
        end = begin + limit
        return {
            "letters": found[begin:end],
            "next": str(end) if end < len(found) else None,
            "failures": [],
            "looked": "from 2026-11-20 to now",
        }

    def act(self, path: str, body: Any) -> tuple[int, flows.Json]:
        """Return the outcome of a POST; the letters are gone afterwards."""
        self.posted.append((path, body))
        if path in self.refuses:
            return self.refuses[path]
        if self.outcome is not None:
            return 200, self.outcome
        places = {each["place"] for each in body["letters"]}
        self.letters = [each for each in self.letters if each["place"] not in places]
        what = "sent to orders.retry.1m" if path.endswith("requeue") else "dropped"
        return 200, {"done": [each | {"what": what} for each in body["letters"]], "failed": []}


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = urlsplit(self.path)
            fake.asked.append(self.path)
            if found.path.startswith("/api/"):
                query = {name: values[0] for name, values in parse_qs(found.query).items()}
                self._say(lambda: fake.answer(found.path, query))
                return
            self._send(*fake.file(found.path.strip("/") or "page.html"))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._say(lambda: fake.act(self.path, body))

        def _say(self, answer: Any) -> None:
            if fake.away:
                self.close_connection = True
                return
            if fake.token and self.headers.get("Authorization") != f"Bearer {fake.token}":
                status, told = 401, {"error": "unknown token", "todo": "Give one that is."}
            else:
                status, told = answer()
            self._send(status, json.dumps(told).encode(), "application/json")

        def _send(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing: a test says what went wrong."""

    return Handler


class _Server(ThreadingHTTPServer):
    # A browser opens more connections at once than the five that may wait by default.
    request_queue_size = 64


@contextmanager
def fake_console() -> Iterator[Fake]:
    """Yield a server on loopback, at `url`."""
    fake = Fake()
    server = _Server(("127.0.0.1", 0), _handler(fake))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
