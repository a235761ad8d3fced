"""Idle and slow clients: they cost a bounded number of descriptors, and they come to an end."""

import asyncio
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from dovecote.process.http import state
from dovecote.process.http.connections import Bounds, Wait
from dovecote.process.http.server import App, Message, Receive, Scope, Send, answer, serve
from relay.health import Health
from tests.support.waiting import patient, until

PROBES = ("/healthz", "/readyz", "/metrics")
QUICK: dict[Wait, float] = {"head": 0.3, "body": 0.3, "reader": 0.3}
NEVER: dict[Wait, float] = {"head": 600.0, "body": 600.0, "reader": 600.0}


def status(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=patient(10))
    try:
        connection.request("GET", path)
        found = connection.getresponse()
        found.read()
        return found.status
    finally:
        connection.close()


def held() -> tuple[int, int]:
    """Return how many descriptors and threads this process has."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@contextmanager
def crowd(port: int, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Open connections in a process whose limit of descriptors has room for them."""
    with ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), patient(10)))
            for _ in range(number)
        ]
        for each in opened:
            each.sendall(sent)
        yield opened


def ended(client: socket.socket) -> bool:
    """Return whether the server has ended the connection."""
    client.settimeout(0)
    try:
        return not client.recv(1_000_000)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.fixture
def health() -> Health:
    found = Health(stall_after=3_600)
    found.progressed("active")
    return found


@contextmanager
def serving(
    app: App,
    health: Health,
    *,
    connections: int = 8,
    requests: int = 4,
    seconds: dict[Wait, float] = NEVER,
    registry: CollectorRegistry | None = None,
) -> Iterator[int]:
    with serve(
        app,
        "127.0.0.1",
        0,
        hosts=(),
        bounds=Bounds(connections, requests, seconds),
        health=health,
        numbers=registry or CollectorRegistry(),
    ) as port:
        yield port


async def quick(_scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, 200, b"{}")


async def whole(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answer when all of the body is here."""
    message: Message = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
    await answer(send, 200, b"{}")


async def large(_scope: Scope, _receive: Receive, send: Send) -> None:
    await answer(send, 200, b"x" * 30_000_000)


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTT"])
def test_idle_connections_take_a_bounded_number_of_descriptors_and_threads(
    health: Health, sent: bytes
) -> None:
    with state.serve("127.0.0.1", 0, health, CollectorRegistry()) as port:
        assert [status(port, path) for path in PROBES] == [200, 200, 200]
        descriptors, threads = held()
        with crowd(port, 300, sent) as clients:
            until(lambda: sum(map(ended, clients)) >= 300 - 48, within=10, what="most have ended")
            assert [status(port, path) for path in PROBES] == [200, 200, 200]
            now = held()
            assert now[0] - 300 <= descriptors + 48
            assert now[1] <= threads + 2


def test_a_process_with_few_descriptors_keeps_some_while_many_connections_come(
    health: Health,
) -> None:
    """Descriptors of this process's own clients count, too, so half a crowd fills its limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with state.serve("127.0.0.1", 0, health, CollectorRegistry()) as port:
        used = held()[0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 200, hard))
        try:
            with crowd(port, 110):
                with ExitStack() as stack:
                    for _ in range(10):
                        stack.enter_context(Path("/proc/self/status").open())
                assert status(port, "/healthz") == 200
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("app", "sent", "trickle"),
    [
        (quick, b"", b""),
        (quick, b"GET /a HTTP/1.1\r\nHost: localhost\r\n", b"a"),
        (quick, b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
        (quick, b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", b"G"),
        (whole, b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n", b"a"),
        # Answered before its body is here, which then comes slowly.
        (quick, b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n", b"a"),
        (whole, b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
    ],
    ids=["nothing", "head", "idle", "next head", "body", "answered", "chunks"],
)
def test_a_client_that_does_not_go_on_in_time_is_ended_although_it_sends_bytes(
    health: Health, app: App, sent: bytes, trickle: bytes
) -> None:
    with serving(app, health, seconds=QUICK) as port, crowd(port, 1, sent) as (client,):

        def sends_on() -> bool:
            try:
                client.send(trickle)
            except ConnectionError:
                return True
            return ended(client)

        until(sends_on, within=10, what="the connection has ended")
        assert status(port, "/a") == 200


def test_a_client_that_does_not_read_its_answer_is_ended(health: Health) -> None:
    before = held()[0]
    asked = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3
    with serving(large, health, seconds=QUICK) as port, crowd(port, 1, asked):
        # The client's own descriptor, the server's socket and its loop's three.
        until(lambda: held()[0] <= before + 5, within=10, what="the server's side has ended")


def test_a_client_that_reads_and_asks_in_time_stays(health: Health) -> None:
    with serving(quick, health, seconds={**NEVER, "head": 2.0}) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=patient(10))
        connection.connect()
        first = connection.sock
        for _ in range(20):
            connection.request("GET", "/a")
            assert connection.getresponse().read() == b"{}"
        assert connection.sock is first
        connection.close()


def test_probes_answer_while_as_many_requests_are_under_way_as_may_be(health: Health) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    async def slow(_scope: Scope, _receive: Receive, send: Send) -> None:
        begun.release()
        await asyncio.to_thread(go.wait, patient(30))
        await answer(send, 200, b"{}")

    registry = CollectorRegistry()
    Gauge("answered", "one", registry=registry).set(1)
    asked = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        serving(slow, health, registry=registry) as port,
        crowd(port, 4, asked) as clients,
        crowd(port, 30),
    ):
        for _ in clients:
            assert begun.acquire(timeout=patient(10))
        assert status(port, "/a") == 503
        assert [status(port, path) for path in PROBES] == [200, 200, 200]
        go.set()
        # Idle connections came and went; none of those that were being answered has ended.
        for client in clients:
            client.settimeout(patient(10))
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        until(lambda: status(port, "/a") == 200, within=10, what="there is room again")


def test_requests_that_wait_for_their_clients_make_room_for_others(health: Health) -> None:
    stalled = b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"
    with serving(whole, health) as port, crowd(port, 4, stalled) as clients:
        for _ in range(20):
            assert status(port, "/a") == 200
        assert any(map(ended, clients))


def test_a_full_server_takes_those_that_speak_before_those_that_are_silent(
    health: Health,
) -> None:
    with serving(quick, health) as port, crowd(port, 8) as first:
        with crowd(port, 4):
            until(lambda: sum(map(ended, first)) == 4, within=10, what="room for the new")
            assert [ended(each) for each in first] == [True] * 4 + [False] * 4
        assert status(port, "/a") == 200


def test_metrics_that_are_asked_for_at_once_are_made_once_and_probes_do_not_wait(
    health: Health,
) -> None:
    begun, go, made = threading.Event(), threading.Event(), []

    class Slow:
        def collect(self) -> Iterator[object]:
            made.append(1)
            begun.set()
            go.wait(patient(30))
            return iter(())

    registry = CollectorRegistry()
    registry.register(Slow())  # type: ignore[arg-type]  # all that is asked of a collector
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        serving(quick, health, connections=32, registry=registry) as port,
        crowd(port, 20, asked) as clients,
    ):
        try:
            assert begun.wait(patient(10))
            until(lambda: sum(map(ended, clients)) == 4, within=10, what="no more may wait")
            assert [status(port, path) for path in ("/healthz", "/readyz", "/a")] == [200] * 3
        finally:
            go.set()
        for client in clients:
            client.settimeout(patient(10))
        answered = [client.recv(100).startswith(b"HTTP/1.1 200") for client in clients]
        assert (sum(answered), len(made)) == (16, 1)


def test_only_questions_are_answered(health: Health) -> None:
    with serving(quick, health) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=patient(10))
        for method, path, wanted in (
            ("HEAD", "/healthz", 200),
            ("HEAD", "/metrics", 200),
            ("POST", "/readyz", 405),
            ("DELETE", "/metrics", 405),
        ):
            connection.request(method, path)
            found = connection.getresponse()
            found.read()
            assert found.status == wanted, (method, path)
        connection.close()
