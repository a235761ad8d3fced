"""A server that answers each connection with the same bytes, whatever they are."""

import socketserver
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

DEEP = b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000
ODD = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nothing": b"",
    "cut off": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{",
    "no JSON": b"HTTP/1.1 200 OK\r\n\r\n<html>",
    "no number of JSON": b"HTTP/1.1 200 OK\r\n\r\n[NaN]",
    "too deep": DEEP,
    "an error that is cut off": b"HTTP/1.1 503 no\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{",
}
"""Answers in which there is no JSON."""


def whole(body: bytes) -> bytes:
    """Return an answer with a body."""
    return b"HTTP/1.1 200 OK\r\n\r\n" + body


@contextmanager
def answering(answer: bytes, then: Iterable[bytes] = ()) -> Iterator[str]:
    """
    Answer so until the end of the block; yield the URL.

    The parts of `then` come one after the other, for as long as they are taken.
    """

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)
            with suppress(OSError):  # it has gone
                for part in then:
                    self.wfile.write(part)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
