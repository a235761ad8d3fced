"""A batch that is too large for the connection to the broker shrinks until it gets through."""

import subprocess
import uuid
from pathlib import Path

import psycopg
import pytest

from dovecote.devstack import Stack
from dovecote.devstack.kafka.jars import kafka_broker_jars
from dovecote.devstack.kafka.java import java
from outbox import Event, write
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import (
    AGREE,
    commit,
    committed,
    difference,
    event,
    installed,
    published,
    relays,
)
from tests.support.waiting import consume, patient, until


def limit(bootstrap: str, client: str, bytes_per_second: int) -> None:
    """Let a client produce at this rate, and no faster."""
    found = java()
    subprocess.run(
        [
            *(str(found.executable), *found.options, "-cp", f"{kafka_broker_jars(None)}/*"),
            *("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--alter"),
            *("--add-config", f"producer_byte_rate={bytes_per_second}"),
            *("--entity-type", "clients", "--entity-name", client),
        ],
        check=True,
        capture_output=True,
        timeout=patient(60),
    )


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_backlog_gets_through_a_way_that_is_narrow(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, capture: str
) -> None:
    client, rate, count = f"relay-{uuid.uuid4().hex}", 100_000, 2_000
    limit(stack.kafka.bootstrap, client, rate)
    name = topic(2)
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        with psycopg.connect(fleet.dsn) as conn:
            # In one transaction, and random, because compression does not shrink random bytes.
            big = [
                Event(topic=name, type="T", key=f"k{n % 9}", value=uuid.uuid4().bytes * 60)
                for n in range(count)
            ]
            write(conn, *big)
        # It takes 20 s, and as a whole it would be given up.
        fleet.active(
            capture=capture,
            transaction_timeout="8s",
            kafka={"client.id": client, "compression.type": "none"},
        )
        # As a whole it was given up and sent again, without end.
        until(lambda: len(consume(fleet.bootstrap, name)) == count, within=150, what="all")


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_relay_that_is_killed_between_two_parts_of_what_it_read_goes_on_there(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, capture: str
) -> None:
    name, count = topic(2), 3_000
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        commit(fleet.dsn, *[event(name, n, key=f"k{n % 7}") for n in range(1_500)])
        for first in range(1_500, count, 10):
            commit(fleet.dsn, *[event(name, n, key=f"k{n % 7}") for n in range(first, first + 10)])
        seen = 0
        for _ in range(4):
            relay = fleet.active(capture=capture, batch_bytes=1_000)
            least = min(seen + 1, count)
            until(lambda: len(consume(fleet.bootstrap, name)) >= least, within=30, what="more")  # noqa: B023  # called at once
            relay.kill()
            seen = len(consume(fleet.bootstrap, name))
        fleet.active(capture=capture, batch_bytes=1_000)
        wanted = committed(fleet.dsn, name)
        assert difference(wanted, published(fleet, name, count, within=90)) == AGREE
