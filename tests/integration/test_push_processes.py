"""Several processes of push under one parent: `processes = N`."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovecote.devstack.places import free_port
from dovecote.push.api.access import hashed
from tests.support.consuming import event, produce
from tests.support.delivering import Endpoint
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import installed
from tests.support.parents import TOKEN, Crew, crew
from tests.support.waiting import patient, until

PUSH = """
allow_addresses = ["127.0.0.0/8"]
poll = "200ms"
processes = 2

[http]
port = {port}

[brokers.default]
"bootstrap.servers" = "{bootstrap}"
"session.timeout.ms" = "6000"

[api.tokens]
ops = "{token}"
"""


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.fixture
def push(tmp_path: Path, database: str, kafka: str) -> Iterator[Crew]:
    port = free_port()
    text = PUSH.format(port=port, bootstrap=kafka, token=hashed(TOKEN))
    (tmp_path / "push.toml").write_text(text)
    with (
        installed(database) as dsn,
        crew(
            tmp_path, ["push", "serve", "--config", "push.toml"], port, DOVECOTE_PUSH_DSN=dsn
        ) as made,
    ):
        made.gets_ready()
        yield made


def test_push_has_one_api_for_all_its_processes(push: Crew, kafka: str, topic: MakeTopic) -> None:
    name = topic(4)
    with Endpoint() as endpoint:
        wanted = {"id": "hook", "topics": [name], "endpoint": {"url": endpoint.url}}
        made = push.api("POST", "/subscriptions", wanted)
        assert made.status == 201, made
        assert push.api("POST", "/subscriptions", wanted).status == 200
        odd = push.api("POST", "/subscriptions", {"id": "hook", "nonsense": "x" * 1000})
        assert odd.status == 422
        events = [event(name, f"k{n % 40}", n) for n in range(100)]
        produce(kafka, *events)
        endpoint.has_got(100, within=60)
        until(
            lambda: push.api("GET", "/subscriptions/hook").body["counts"]["delivered"] == 100,
            within=30,
            what="all counted",
        )
        assert push.api("GET", "/subscriptions?limit=1").status == 200
        text = push.metrics()
        assert 'process="0"' in text
        assert 'process="1"' in text

        os.kill(push.children()[0], signal.SIGKILL)
        until(
            lambda: push.api("GET", "/subscriptions/hook").status == 200,
            within=20,
            what="the API answers all the while",
        )
        produce(kafka, *(event(name, f"k{n % 40}", n) for n in range(100, 200)))
        until(
            lambda: len({request.event_id for request in endpoint.requests}) == 200,
            within=90,
            what="all delivered",
        )
        push.gets_ready()
        assert push.end() == 0, push.log.read_text()
    ids = {request.event_id for request in endpoint.requests}
    assert {each.id for each in events} < ids


def test_who_has_no_token_learns_nothing_from_the_parent(push: Crew) -> None:
    stranger = push.stranger
    for path in ("/subscriptions", "/subscriptions/hook", "/audit"):
        assert stranger("GET", path).status in {401, 403}, path
    assert stranger("GET", "/healthz").status == 200
    assert stranger("GET", "/readyz", Host="evil.example").status == 403
    big = stranger("POST", "/subscriptions", {"id": "x" * 300_000})
    assert big.status in {401, 413}
    page = stranger("GET", "/")
    assert page.status == 200
    with socket.create_connection(("127.0.0.1", push.port), patient(20)) as slow:
        slow.sendall(
            b"POST /subscriptions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
        )
        assert slow.recv(1000).startswith(b"HTTP/1.1 401 "), "before it has sent its body"


def test_the_audit_log_has_the_address_of_the_client(push: Crew) -> None:
    with socket.create_connection(
        ("127.0.0.1", push.port), patient(20), source_address=("127.0.0.9", 0)
    ) as asked:
        asked.sendall(
            b"POST /subscriptions/nobody/pause HTTP/1.1\r\nhost: localhost\r\n"
            b"dovecote-caller: " + b"0" * 32 + b" 6.6.6.6\r\n"
            b"authorization: Bearer " + TOKEN.encode() + b"\r\ncontent-length: 0\r\n\r\n"
        )
        assert asked.recv(1000).startswith(b"HTTP/1.1 404 ")
    entry = until(lambda: push.api("GET", "/audit").body, within=10, what="an entry")[0]
    assert entry["address"] == "127.0.0.9"
