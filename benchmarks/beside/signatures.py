"""An endpoint that verifies the signatures of requests with the library of Standard Webhooks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError


class Receiver:
    """The requests so far."""

    def __init__(self, secret: str) -> None:
        self._webhook = Webhook(secret)
        self._lock = threading.Lock()
        self.taken = 0
        self.refused: str | None = None
        """The reason for which one of them was refused; None: all were signed."""

        self.url = ""

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """Count a request, and verify its signature."""
        refused = None
        try:
            self._webhook.verify(body, headers, json_parse=False)
        except WebhookVerificationError as error:
            refused = str(error)
        with self._lock:
            self.taken += 1
            self.refused = self.refused or refused


@contextmanager
def receiver(secret: str) -> Iterator[Receiver]:
    """Serve on the loopback until the block ends."""
    found = Receiver(secret)

    class Taking(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = self.rfile.read(length)
            found.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        server.daemon_threads = True
        found.url = f"http://127.0.0.1:{server.server_address[1]}/signed"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
