"""Clients that connect and say nothing: push answers others, and a relay recovers beside them."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import Client, idle, installed, push_settings
from tests.support.relaying import RelayProcess, Relays, commit, event, published
from tests.support.waiting import patient, until

HEAD = b"POST /subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
FEW = 256


@contextmanager
def crowd(port: int, number: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connect, send the same on each connection, and nothing else."""
    with ExitStack() as stack:
        clients = []
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", port), patient(10))
            clients.append(stack.enter_context(client))
            client.sendall(sent)
        yield clients


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\n"], ids=["silent", "head", "body"])
def test_push_answers_its_callers_and_probes_beside_idle_connections(
    database: str, stack: Servers, sent: bytes
) -> None:
    with (
        installed(database) as dsn,
        idle(push_settings(dsn, stack.kafka.bootstrap)) as (found, _),
    ):
        client = Client(found.at.port)
        until(lambda: client("GET", "/readyz").status == 200, within=10, what="ready")
        with crowd(found.at.port, 300, sent):
            for path in ("/healthz", "/readyz", "/metrics", "/", "/subscriptions"):
                assert client("GET", path).status == 200, path


def test_a_relay_with_few_descriptors_reconnects_beside_idle_connections(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active()
    resource.prlimit(relay.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    port = int(relay.log.partition("serving ")[2].partition("\n")[0].rpartition(":")[2])
    before = threads(relay)
    with crowd(port, 300):
        assert relay.get("/healthz").status == 200
        with psycopg.connect(fleet.dsn, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        commit(fleet.dsn, event(name, 1))
        published(fleet, name, 1)
        until(lambda: relay.get("/readyz").status == 200, within=30, what="ready again")
        assert descriptors(relay) < FEW
        assert threads(relay) <= before + 8


def descriptors(relay: RelayProcess) -> int:
    return len(list(Path(f"/proc/{relay.pid}/fd").iterdir()))


def threads(relay: RelayProcess) -> int:
    return len(list(Path(f"/proc/{relay.pid}/task").iterdir()))
