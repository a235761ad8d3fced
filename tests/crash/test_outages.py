"""A server is away for a while: the relay says so, waits, loses nothing and goes on by itself."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devstack import Stack
from tests.fix_stack import MakeTopic, new_database, new_topics
from tests.relaying import AGREE, Relays, commit, committed, difference, event, installed, relays
from tests.waiting import consume, until

SECONDS = float(os.environ.get("DOVECOTE_OUTAGE_SECONDS", "5"))
"""How long a server is away; a longer run sets a minute."""

Break = tuple[Callable[[Stack], None], Callable[[Stack], None]]

KAFKA_KILLED: Break = (lambda stack: stack.kafka.kill(), lambda stack: stack.kafka.start())
KAFKA_PAUSED: Break = (lambda stack: stack.kafka.pause(), lambda stack: stack.kafka.resume())
POSTGRES_KILLED: Break = (lambda stack: stack.postgres.kill(), lambda s: s.postgres.start())
POSTGRES_PAUSED: Break = (lambda stack: stack.postgres.pause(), lambda s: s.postgres.resume())


@pytest.fixture
def fleet(module_stack: Stack, tmp_path: Path) -> Iterator[Relays]:
    """Starts relays of one outbox, in servers that nobody else uses."""
    with (
        new_database(module_stack) as dsn,
        relays(tmp_path, installed(dsn), module_stack.kafka.bootstrap) as started,
    ):
        yield started


@pytest.fixture
def own_topic(module_stack: Stack) -> Iterator[MakeTopic]:
    """Makes topics in those servers."""
    with new_topics(module_stack) as make:
        yield make


@pytest.mark.slow
@pytest.mark.timeout(120 + 3 * SECONDS)
@pytest.mark.parametrize(
    ("outage", "named"),
    [
        pytest.param(KAFKA_KILLED, "", id="kafka-down"),
        pytest.param(KAFKA_PAUSED, "", id="kafka-hangs"),
        pytest.param(POSTGRES_KILLED, "Postgres", id="postgres-down"),
        pytest.param(POSTGRES_PAUSED, "", id="postgres-hangs"),
    ],
)
def test_while_a_server_is_away_the_relay_waits_says_so_and_goes_on(
    module_stack: Stack, fleet: Relays, own_topic: MakeTopic, outage: Break, named: str
) -> None:
    name = own_topic(2)
    relay = fleet.active(stall_after="2s")
    commit(fleet.dsn, *(event(name, n) for n in range(1, 11)))
    _agrees(fleet, name)
    break_it, mend_it = outage

    break_it(module_stack)
    try:
        if module_stack.postgres.running and outage is not POSTGRES_PAUSED:
            commit(fleet.dsn, *(event(name, n) for n in range(11, 21)))
        until(lambda: relay.get("/readyz").status == 503, within=30, what="/readyz says no")
        answer = json.loads(relay.get("/readyz").body)
        assert named in answer["reason"]
        assert answer["reason"]
        threading.Event().wait(SECONDS)
        assert relay.get("/readyz").status == 503
        assert relay.get("/healthz").status == 200
    finally:
        mend_it(module_stack)

    until(lambda: relay.get("/readyz").status == 200, within=60, what="/readyz says yes")
    commit(fleet.dsn, *(event(name, n) for n in range(21, 31)))
    _agrees(fleet, name)
    assert "nothing is lost" in relay.log
    assert "going on after" in relay.log


def _agrees(fleet: Relays, topic: str) -> None:
    wanted = committed(fleet.dsn, topic)
    until(
        lambda: len(consume(fleet.bootstrap, topic)) >= len(wanted), within=60, what="every event"
    )
    assert difference(wanted, consume(fleet.bootstrap, topic)) == AGREE
