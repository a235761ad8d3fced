"""Receive events over HTTP, and accept only those with a valid signature."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def receiver(secret: str, handle: Callable[[str, Any], None]) -> ThreadingHTTPServer:
    """
    Return a server on any free port that calls `handle` with the id and the value of each event.
    """
    webhook = Webhook(secret)

    class Receiver(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                webhook.verify(body, {name.lower(): value for name, value in self.headers.items()})
            except WebhookVerificationError:
                self.answer(401)
                return
            handle(self.headers["webhook-id"], json.loads(body))
            self.answer(204)

        def answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            """Print nothing: `handle` does."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
