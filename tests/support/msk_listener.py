"""A listener that takes what a client of Kafka sends over SASL, and lets nobody in."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36
_UNSUPPORTED = 35
_SUPPORTED = ((_HANDSHAKE, 0, 1), (_API_VERSIONS, 0, 0), (_AUTHENTICATE, 0, 0))


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """Yield the listener's address, and what clients have sent to authenticate so far."""
    sent: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connections.append(connection)
                threads.append(threading.Thread(target=_serve, args=(connection, sent)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}", sent
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def _serve(connection: socket.socket, sent: list[bytes]) -> None:
    with connection, suppress(OSError, EOFError):
        while True:
            (size,) = struct.unpack(">i", _read(connection, 4))
            request = _read(connection, size)
            key, version, correlation, client = struct.unpack_from(">hhih", request)
            body = request[10 + max(client, 0) :]
            answer = _answer(key, version, body, sent)
            head = struct.pack(">i", correlation)
            connection.sendall(struct.pack(">i", len(head + answer)) + head + answer)


def _answer(key: int, version: int, body: bytes, sent: list[bytes]) -> bytes:
    if key == _API_VERSIONS:
        # A client that asks in a newer way is told so in the oldest, and asks again.
        apis = b"".join(struct.pack(">hhh", *each) for each in _SUPPORTED)
        error = _UNSUPPORTED if version else 0
        return struct.pack(">hi", error, len(_SUPPORTED)) + apis
    if key == _HANDSHAKE:
        return struct.pack(">hih", 0, 1, len(b"OAUTHBEARER")) + b"OAUTHBEARER"
    (size,) = struct.unpack_from(">i", body)
    sent.append(body[4 : 4 + size])
    refused = b"not let in"
    return struct.pack(">hh", 58, len(refused)) + refused + struct.pack(">i", 0)


def _read(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (part := connection.recv(size - len(found))):
            raise EOFError
        found += part
    return found
