"""Parties of little right that try to hold up `push`: idle clients, odd requests, odd records."""

import json
import resource
import socket
import sys
import threading
import urllib.request
from contextlib import ExitStack
from urllib.error import HTTPError

from confluent_kafka import Producer

FREEZING = "((x{0,120})*){0,120}"
CONNECTIONS = 2_000
_PAUSE_SECONDS = 0.1
_HEAD = b"POST /subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"


def main() -> None:
    port, token, bootstrap, poisoned = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * CONNECTIONS), most))
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", int(port)), 30))
            client.sendall(_HEAD if number % 2 else b"")
        ends = threading.Event()
        work = threading.Thread(target=attack, args=(port, token, bootstrap, poisoned, ends))
        work.start()
        print("begun", flush=True)
        sys.stdin.read()
        ends.set()
        work.join()


def attack(port: str, token: str, bootstrap: str, poisoned: str, ends: threading.Event) -> None:
    """Ask for a pattern that once froze the process, and produce records with odd histories."""
    producer = Producer({"bootstrap.servers": bootstrap})
    body = {
        "id": "freezing",
        "topics": {"pattern": FREEZING},
        "endpoint": {"url": "https://hooks.example"},
    }
    number = 0
    while not ends.wait(_PAUSE_SECONDS):
        number += 1
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/subscriptions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(asked, timeout=30).close()  # noqa: S310  # ours
        except HTTPError as refused:
            refused.close()
        except OSError:
            pass  # beyond the bound on connections: it has its effect, or none
        attempt = -3_000_000_000 if number % 2 else 2**63
        producer.produce(
            poisoned, b"%010d" % number, b"k", headers=[("dovecote_attempt", str(attempt))]
        )
        producer.poll(0)
    producer.flush(30)
