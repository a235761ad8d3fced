"""A network that can be held back or cut: a TCP proxy between the relays and a server."""

import socket
import threading
from contextlib import suppress
from typing import Self

_CHUNK = 65_536


class Proxy:
    """Forwards connections from a free loopback port to `target` until it is closed."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        """The target of new connections; open ones stay where they are."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connected = threading.Event()
        """Set when a client has connected."""
        self.port: int = self._listener.getsockname()[1]
        self._flows, self._slow = threading.Event(), threading.Event()
        self._flows.set()
        self._may_pass: int | None = None
        self.rate: float | None = None
        """Bytes per second in each direction of a connection; None: unlimited."""
        self._open: set[socket.socket] = set()
        self._stranded: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # it was never connected
            self._listener.shutdown(socket.SHUT_RDWR)  # otherwise the thread would go on accepting
        self._listener.close()
        self._closed.set()
        self.resume()
        self.cut()

    def stall(self) -> None:
        """Forward nothing until `resume`; what is sent meanwhile arrives then."""
        self._flows.clear()

    def stall_after(self, size: int) -> None:
        """Forward `size` more bytes to the target, and nothing after them until `resume`."""
        self._may_pass = size

    def strand(self) -> None:
        """
        Swallow everything on the open connections for ever; new connections are forwarded.

        Their peers see open but silent sockets, as with a balancer that has failed over.
        """
        with self._lock:
            self._stranded |= self._open

    def resume(self) -> None:
        """Forward again."""
        self._may_pass = None
        self._flows.set()

    def cut(self) -> None:
        """Reset all open connections."""
        with self._lock:
            for each in self._open:
                # Both sides notice, and the threads that forward end.
                with suppress(OSError):  # it is closed already
                    each.shutdown(socket.SHUT_RDWR)

    def ports(self) -> list[int]:
        """Return the local ports of the open connections to the target."""
        found: list[int] = []
        with self._lock:
            for each in self._open:
                with suppress(OSError):  # it is closed already
                    if each.getpeername() == self.target:
                        found.append(each.getsockname()[1])
        return found

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the end
                return
            try:
                server = socket.create_connection(self.target, timeout=10)
            except OSError:  # as if nobody listened here either
                client.close()
                continue
            server.settimeout(None)
            self.connected.set()
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(
                    target=self._forward,
                    args=(source, sink),
                    kwargs={"to_target": sink is server},
                    name="proxy",
                    daemon=True,
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, *, to_target: bool) -> None:
        try:
            while data := source.recv(_CHUNK):
                if to_target and (most := self._may_pass) is not None:
                    passed, data = data[:most], data[most:]
                    self._may_pass = most - len(passed)
                    if not self._may_pass:
                        self.stall()  # first: not even an answer to it comes back
                    sink.sendall(passed)
                self._flows.wait()
                if (rate := self.rate) is not None:
                    self._slow.wait(len(data) / rate)
                if source not in self._stranded:
                    sink.sendall(data)
            if source in self._stranded:
                # Not even the end of one side reaches the other.
                self._closed.wait()
        except OSError:  # one side is gone, and so is the connection
            pass
        finally:
            with self._lock:
                self._open -= {source, sink}
            for each in (source, sink):
                with suppress(OSError):  # the other direction's thread was first
                    each.shutdown(socket.SHUT_RDWR)
            source.close()
