"""A relay that cannot do its duty leaves the role to one that can, and otherwise to nobody."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from dovecote.devstack import Stack
from dovecote.devstack.places import LOOPBACK, free_port
from proof.proxy import Proxy
from tests.support.fix_stack import MakeTopic, new_database, new_topics
from tests.support.relaying import (
    AGREE,
    Relays,
    commit,
    committed,
    difference,
    event,
    installed,
    published,
    relays,
)
from tests.support.waiting import patient, until

LEASE = 10.0
SLACK = 10.0


class Cut(NamedTuple):
    """One Kafka, and a connection to it that can be cut."""

    stack: Stack
    way: Proxy

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": f"{LOOPBACK}:{self.way.port}"}


@pytest.fixture(scope="module")
def cut() -> Iterator[Cut]:
    port = free_port()
    with Proxy((LOOPBACK, port)) as way:
        kafka = {
            "listeners": f"APART://{LOOPBACK}:{port}",
            "advertised.listeners": f"APART://{LOOPBACK}:{way.port}",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,APART:PLAINTEXT"
            ),
        }
        with Stack(fsync=False, kafka=kafka) as stack:
            yield Cut(stack, way)


@pytest.fixture
def fleet(cut: Cut, tmp_path: Path) -> Iterator[Relays]:
    with (
        new_database(cut.stack) as dsn,
        relays(tmp_path, installed(dsn), cut.stack.kafka.bootstrap) as made,
    ):
        yield made


@pytest.fixture
def topic(cut: Cut) -> Iterator[MakeTopic]:
    with new_topics(cut.stack) as make:
        yield make


@contextmanager
def stalled(way: Proxy) -> Iterator[None]:
    """Let nothing through, as if it were still on its way."""
    way.stall()
    try:
        yield
    finally:
        way.cut()
        way.resume()


def test_a_relay_that_is_cut_off_from_kafka_leaves_the_role_within_twice_the_lease(
    cut: Cut, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    alone = fleet.active(kafka=cut.kafka, lease=f"{LEASE:.0f}s")
    other = fleet.start(lease=f"{LEASE:.0f}s")
    other.until_logged("standing by")
    commit(fleet.dsn, event(name, 0))
    published(fleet, name, 1)
    with stalled(cut.way):
        began = time.monotonic()
        commit(fleet.dsn, event(name, 1))
        published(fleet, name, 2, within=2 * LEASE + SLACK)
        assert time.monotonic() - began < 2 * LEASE + patient(SLACK)
        until(lambda: alone.get("/readyz").status == 503, within=10, what="it is not ready")
        until(
            lambda: "could not take over" in alone.get("/readyz").body,
            within=20,
            what="what keeps it from taking over",
        )
    until(lambda: alone.get("/readyz").status == 200, within=30, what="a sound standby")
    # Its turn has come again.
    other.kill()
    commit(fleet.dsn, event(name, 2))
    found = published(fleet, name, 3)
    assert difference(committed(fleet.dsn, name), found) == AGREE


def test_while_kafka_is_away_for_all_the_role_stays_where_it_is(
    cut: Cut, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    first = fleet.active(kafka=cut.kafka, lease="4s", transaction_timeout="10s")
    second = fleet.start(kafka=cut.kafka, lease="4s", transaction_timeout="10s")
    second.until_logged("standing by")
    with stalled(cut.way):
        commit(fleet.dsn, event(name, 0))
        until(
            lambda: [each.get("/readyz").status for each in (first, second)] == [503, 503],
            within=30,
            what="both say so",
        )
        first.until_logged("outage:", within=90)
    found = published(fleet, name, 1, within=60)
    assert difference(committed(fleet.dsn, name), found) == AGREE
    assert first.log.count("no longer active") == 0
    assert second.log.count("active: this relay") == 0
