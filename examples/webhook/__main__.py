"""Send flights from Postgres to a receiver over HTTP: outbox, relay, Kafka, push, a signature."""

import base64
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.demo.flights import Flight, flights
from dovecote.devstack.places import free_port
from dovecote.devstack.stack import Stack
from dovecote.push.store import schema as push_schema
from examples.webhook.receive import receiver
from outbox import Event, schema, write

TOPIC = "flights"
FLIGHTS = 20
_SECONDS = 60

RELAY = """
dsn = { env = "EXAMPLE_DSN" }
[kafka]
"bootstrap.servers" = "BOOTSTRAP"
"""

PUSH = """
dsn = { env = "EXAMPLE_DSN" }
allow_addresses = ["127.0.0.0/8"]    # the receiver is on this machine

[http]
port = PORT

[brokers.default]
"bootstrap.servers" = "BOOTSTRAP"
"""


def main() -> None:
    """Run the example until every flight has arrived."""
    secret = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
    arrived: dict[str, Any] = {}
    complete = threading.Event()

    def handle(id_: str, flight: dict[str, Any]) -> None:
        arrived[id_] = flight
        print(f"{id_}  {flight['flight']:8} {flight['from']} to {flight['to']}")  # noqa: T201  # the output of the example
        if len(arrived) == FLIGHTS:
            complete.set()

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = stack.enter_context(Stack(fsync=False))
        server = stack.enter_context(receiver(secret, handle))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        environment = {"EXAMPLE_DSN": servers.postgres.dsn, "PUSH_SECRET_HOOK": secret}
        bootstrap = servers.kafka.bootstrap
        kafka = AdminClient({"bootstrap.servers": bootstrap})
        kafka.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(_SECONDS)
        with psycopg.connect(servers.postgres.dsn) as conn:
            schema.install(conn)
            push_schema.install(conn)
        (folder / "relay.toml").write_text(RELAY.replace("BOOTSTRAP", bootstrap))
        port = free_port()
        text = PUSH.replace("BOOTSTRAP", bootstrap).replace("PORT", str(port))
        (folder / "push.toml").write_text(text)
        stack.enter_context(dovecote("relay", "run", folder / "relay.toml", environment))
        stack.enter_context(dovecote("push", "serve", folder / "push.toml", environment))
        with psycopg.connect(servers.postgres.dsn) as conn:
            for flight in flights(FLIGHTS):
                write(conn, event(flight))
        wait_for(f"http://127.0.0.1:{port}/readyz")
        endpoint = f"http://127.0.0.1:{server.server_port}/"
        subscribe(f"http://127.0.0.1:{port}", endpoint, folder)
        if not complete.wait(_SECONDS):
            sys.exit(f"only {len(arrived)} of {FLIGHTS} flights arrived")
    print(f"{FLIGHTS} flights arrived, each with a signature that is right")  # noqa: T201  # the output of the example


def event(flight: Flight) -> Event:
    """Return the service's event for a flight."""
    value = {
        "flight": f"{flight.carrier}{flight.number}",
        "from": flight.origin,
        "to": flight.destination,
    }
    return Event(topic=TOPIC, key=flight.key, type="FlightScheduled", value=value)


def subscribe(url: str, endpoint: str, folder: Path) -> None:
    """Subscribe `endpoint` to the flights, signed with a secret from push's environment."""
    subscription = {
        "id": "flights",
        "topics": [TOPIC],
        "endpoint": {"url": endpoint},
        "signing": {"secrets": ["env:HOOK"]},
    }
    file = folder / "subscription.json"
    file.write_text(json.dumps(subscription))
    subprocess.run([command(), "push", "subscribe", "--api", url, str(file)], check=True)


@contextmanager
def dovecote(group: str, name: str, config: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a command of ours beside this program; it says on stderr what is in its way."""
    arguments = [command(), group, name, "--config", str(config)]
    process = subprocess.Popen(arguments, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        process.wait(_SECONDS)


def wait_for(url: str) -> None:
    """Wait until the server at `url` reports that it is ready."""
    deadline, pause = time.monotonic() + _SECONDS, threading.Event()
    while time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=_SECONDS):  # noqa: S310  # of our own
                return
        except OSError:
            pause.wait(0.1)
    sys.exit(f"{url} does not answer")


def command() -> str:
    """Return the command of this installation."""
    return str(Path(sys.executable).with_name("dovecote"))


if __name__ == "__main__":
    main()
