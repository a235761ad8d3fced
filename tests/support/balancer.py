"""A balancer that forgets its connections: they stay open and are acknowledged, but silent."""

import socket
import threading
from contextlib import suppress
from typing import Self

_CHUNK = 65_536


class Balancer:
    """Forwards connections from a free loopback port to `target`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target, self._turn = target, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="balancer", daemon=True).start()

    def strand(self) -> None:
        """Forward nothing any more on the open connections; new ones work."""
        self._turn += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):  # it has ended already
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:  # the listener is closed
                return
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(
                    target=self._forward, args=(source, sink, self._turn), daemon=True
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, turn: int) -> None:
        with suppress(OSError):  # one side is gone
            while data := source.recv(_CHUNK):
                if turn == self._turn:
                    sink.sendall(data)
            if turn == self._turn:
                sink.shutdown(socket.SHUT_RDWR)
