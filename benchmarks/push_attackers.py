"""Parties of little right that try to hold up `push`: idle clients, odd requests, odd records."""

import json
import resource
import select
import socket
import sys
import threading
import urllib.request
from contextlib import suppress
from urllib.error import HTTPError

from confluent_kafka import Producer

FREEZING = "((x{0,120})*){0,120}"
CONNECTIONS = 2_000
_PAUSE_SECONDS = 0.1
# As many come again as if each client tried anew every ten seconds.
_AT_ONCE = 20
_HEAD = b"POST /subscriptions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"


def main() -> None:
    port, token, bootstrap, poisoned = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * CONNECTIONS), most))
    ends = threading.Event()
    idle = Idle(int(port))
    while len(idle.open) < CONNECTIONS:
        idle.connect()
    work = [
        threading.Thread(target=attack, args=(port, token, bootstrap, poisoned, ends)),
        threading.Thread(target=idle.stay, args=(ends,)),
    ]
    for each in work:
        each.start()
    print("begun", flush=True)
    sys.stdin.read()
    ends.set()
    for each in work:
        each.join()


class Idle:
    """Connections of which the server ends the oldest, and which come again."""

    def __init__(self, port: int) -> None:
        self._port, self._number = port, 0
        self.open: dict[int, socket.socket] = {}
        self._ended = select.poll()

    def connect(self) -> None:
        """Open one, and begin a request on every other one."""
        client = socket.create_connection(("127.0.0.1", self._port), 30)
        self._number += 1
        with suppress(OSError):  # it is ended already
            client.sendall(_HEAD if self._number % 2 else b"")
        self.open[client.fileno()] = client
        self._ended.register(client, select.POLLIN | select.POLLHUP)

    def stay(self, ends: threading.Event) -> None:
        """Open some of those anew that the server has ended; a flood would be another attack."""
        while not ends.wait(_PAUSE_SECONDS):
            gone = [descriptor for descriptor, _ in self._ended.poll(0)][:_AT_ONCE]
            for descriptor in gone:
                self._ended.unregister(descriptor)
                self.open.pop(descriptor).close()
            for _ in gone:
                with suppress(OSError):  # beyond the bound on connections
                    self.connect()
        for client in self.open.values():
            client.close()


def attack(port: str, token: str, bootstrap: str, poisoned: str, ends: threading.Event) -> None:
    """Ask for a pattern that once froze the process, and produce records with odd histories."""
    producer = Producer({"bootstrap.servers": bootstrap})
    body = {"id": "freezing", "pattern": FREEZING, "endpoint": {"url": "https://hooks.example"}}
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
