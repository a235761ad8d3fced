"""A pooler like PgBouncer: clients share Postgres sessions, transaction by transaction."""

import queue
import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from psycopg import pq
from psycopg.conninfo import make_conninfo

Mode = Literal["transaction", "session"]

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_TOLD = (
    "server_version", "server_encoding", "client_encoding", "DateStyle", "TimeZone",
    "integer_datetimes", "standard_conforming_strings",
)  # fmt: skip


class Pooler:
    """A pool of `size` sessions; `in_turn`: the one that has waited longest is next."""

    def __init__(
        self, dsn: str, *, mode: Mode = "transaction", size: int = 3, in_turn: bool = False
    ) -> None:
        self._mode: Mode = mode
        self._sessions = [pq.PGconn.connect(dsn.encode()) for _ in range(size)]
        self._told = {name: self._sessions[0].parameter_status(name.encode()) for name in _TOLD}
        self._idle: queue.Queue[socket.socket] = queue.Queue() if in_turn else queue.LifoQueue()
        self._servers = [socket.socket(fileno=session.socket) for session in self._sessions]
        for server in self._servers:
            # libpq has made it non-blocking.
            server.settimeout(None)
            self._idle.put(server)
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for server, session in zip(self._servers, self._sessions, strict=True):
            server.detach()
            session.finish()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError), client:
            if not self._greet(client):
                return
            server: socket.socket | None = None
            try:
                while True:
                    request = _request(client)
                    if request is None:
                        return
                    server = server or self._idle.get()
                    server.sendall(request)
                    if _answer(server, client) == b"I" and self._mode == "transaction":
                        self._idle.put(server)
                        server = None
            finally:
                if server is not None:
                    # Like `server_reset_query`: nothing of the client is left.
                    server.sendall(
                        _message(b"Q", b"ROLLBACK\0") + _message(b"Q", b"DISCARD ALL\0")
                    )
                    for _ in range(2):
                        _answer(server, None)
                    self._idle.put(server)

    def _greet(self, client: socket.socket) -> bool:
        """Let anybody in, with a cancel key of our own."""
        while True:
            (length,) = struct.unpack("!i", _exactly(client, 4))
            (code,) = struct.unpack("!i", _exactly(client, length - 4)[:4])
            if code == _CANCEL:
                return False
            if code not in {_SSL, _GSS}:
                break
            client.sendall(b"N")
        told = [
            _message(b"S", name.encode() + b"\0" + (value or b"") + b"\0")
            for name, value in self._told.items()
        ]
        key = _message(b"K", secrets.token_bytes(8))
        client.sendall(
            b"".join([_message(b"R", struct.pack("!i", 0)), *told, key, _message(b"Z", b"I")])
        )
        return True


def _request(client: socket.socket) -> bytes | None:
    """Return a client's request, up to where it waits for an answer; None: it disconnects."""
    asked = b""
    while True:
        kind, message = _receive(client)
        if kind == b"X":
            return None
        asked += message
        if kind in {b"Q", b"S"}:
            return asked


def _answer(server: socket.socket, client: socket.socket | None) -> bytes:
    """Pass on the server's answer; return the transaction state after it."""
    while True:
        kind, message = _receive(server)
        if client is not None:
            with suppress(OSError):
                client.sendall(message)
        if kind == b"Z":
            return message[-1:]


def _receive(peer: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(peer, 5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + _exactly(peer, length - 4)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (part := peer.recv(count - len(data))):
            raise EOFError
        data += part
    return data


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


@contextmanager
def pooled(
    dsn: str, *, mode: Mode = "transaction", size: int = 3, in_turn: bool = False
) -> Iterator[str]:
    """Yield a connection string for `dsn` through a pool."""
    pooler = Pooler(dsn, mode=mode, size=size, in_turn=in_turn)
    try:
        yield make_conninfo(dsn, host="127.0.0.1", port=pooler.port)
    finally:
        pooler.close()
