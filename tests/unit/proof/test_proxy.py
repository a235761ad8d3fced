"""The network that can be held back or cut."""

import socket
import threading
from collections.abc import Iterator

import pytest

from proof.proxy import Proxy
from tests.support.waiting import patient, until


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """Yield the address of a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(patient(10))


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), patient(5))


def test_it_forwards_both_ways(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, connected(proxy) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"


def test_what_is_sent_while_it_is_stalled_arrives_later(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, connected(proxy) as client:
        client.sendall(b"1")
        assert client.recv(100) == b"1"
        proxy.stall()
        client.sendall(b"2")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(100)
        proxy.resume()
        client.settimeout(patient(5))
        assert client.recv(100) == b"2"


def test_it_stalls_in_the_middle_of_what_is_sent(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy, connected(proxy) as client:
        proxy.stall_after(3)
        client.sendall(b"12")
        assert client.recv(100) == b"12"
        client.sendall(b"3456")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(100)
        proxy.resume()
        client.settimeout(patient(5))
        found = b""
        while len(found) < 4:
            found += client.recv(100)
        assert found == b"3456"


def test_a_cut_ends_what_is_open_and_lets_new_ones_through(echo: tuple[str, int]) -> None:
    with Proxy(echo) as proxy:
        with connected(proxy) as client:
            client.sendall(b"1")
            assert client.recv(100) == b"1"
            proxy.cut()
            assert client.recv(100) == b""
        with connected(proxy) as client:
            client.sendall(b"2")
            assert client.recv(100) == b"2"


def test_where_nobody_listens_the_connection_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody: tuple[str, int] = unused.getsockname()
    with (
        Proxy(nobody) as proxy,
        connected(proxy) as client,
    ):
        assert until(lambda: client.recv(100) == b"", within=5, what="the end")
