"""Killed at any moment, paused, taken over: nothing lost, doubled or out of order."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition

from devstack import Stack
from tests.crash.writers import writing
from tests.fix_stack import MakeTopic
from tests.relaying import (
    AGREE,
    RelayProcess,
    Relays,
    commit,
    committed,
    difference,
    event,
    installed,
    relays,
)
from tests.waiting import consume, reader, until

KILLS = 50
PARTITIONS = 3


@pytest.fixture
def fleet(stack: Stack, database: str, tmp_path: Path) -> Iterator[Relays]:
    """Starts relays of one outbox, in a database of its own."""
    with relays(tmp_path, installed(database), stack.kafka.bootstrap) as started:
        yield started


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_killed_fifty_times_under_load_the_relay_loses_doubles_and_disorders_nothing(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(PARTITIONS)
    chance, moment = random.Random(50), threading.Event()
    alive = [fleet.start() for _ in range(2)]

    with writing(fleet.dsn, name):
        for _ in range(KILLS):
            active = until(lambda: _active(alive), within=60, what="an active relay")
            assert active is not None
            if chance.random() < 0.7:
                # Most die at work; the others as soon as they have fenced and read progress.
                _await_more(fleet, name)
            moment.wait(chance.random() * 0.05)
            active.kill()
            alive.remove(active)
            alive.append(fleet.start())

    assert len(fleet.started) == KILLS + 2
    _agrees(fleet, name)


@pytest.mark.parametrize("role", ["with a transaction open", "with nothing to do"])
def test_a_paused_relay_that_wakes_up_after_a_takeover_publishes_nothing(
    fleet: Relays, topic: MakeTopic, role: str
) -> None:
    name = topic(PARTITIONS)
    old = fleet.active()
    if role == "with a transaction open":
        with writing(fleet.dsn, name):
            until(lambda: _visible(fleet, name) > 100, within=60, what="work in flight")
            old.pause()
    else:
        commit(fleet.dsn, event(name, 1))
        until(lambda: _visible(fleet, name) >= 1, within=30, what="the first event")
        old.pause()
    new = fleet.start()
    new.until_logged("publishing from", within=60)
    commit(fleet.dsn, *(event(name, n, key="after") for n in range(100, 150)))
    _agrees(fleet, name)
    before = _ends(fleet, name)

    old.resume()
    old.until_logged("no longer active", within=30)

    # Not even in the log: what the old one had in flight can't be appended any more.
    assert _ends(fleet, name) == before
    assert new.get("/readyz").status == 200
    commit(fleet.dsn, *(event(name, n, key="after") for n in range(150, 200)))
    _agrees(fleet, name)


def test_at_least_once_a_killed_relay_repeats_only_with_the_same_ids(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(PARTITIONS)
    with writing(fleet.dsn, name):
        for _ in range(5):
            active = fleet.active(mode="at_least_once")
            _await_more(fleet, name)
            active.kill()
    fleet.active(mode="at_least_once")
    wanted = committed(fleet.dsn, name)

    def found() -> bool:
        return not difference(wanted, consume(fleet.bootstrap, name)).lost

    until(found, within=60, what="every event")
    result = difference(wanted, consume(fleet.bootstrap, name))
    assert (result.lost, result.invented, result.out_of_order) == (set(), set(), [])


def test_a_long_transaction_elsewhere_does_not_stall_delivery(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic()
    with psycopg.connect(fleet.dsn) as elsewhere, psycopg.connect(fleet.dsn) as late:
        elsewhere.execute("CREATE TABLE busy (n int)")
        late.execute("SELECT outbox.append(%s, 'late', '1', 'Counted', gen_random_uuid())", [name])
        fleet.active()
        commit(fleet.dsn, *(event(name, n) for n in range(1, 11)))

        until(lambda: len(consume(fleet.bootstrap, name)) == 10, within=30, what="delivery")

        late.commit()
        elsewhere.rollback()
    _agrees(fleet, name)


def _active(alive: list[RelayProcess]) -> RelayProcess | None:
    return next((relay for relay in alive if "publishing from" in relay.log), None)


def _await_more(fleet: Relays, topic: str) -> None:
    """Wait until events are published that were not before."""
    seen = _visible(fleet, topic)
    until(lambda: _visible(fleet, topic) > seen, within=60, what="more events")


def _visible(fleet: Relays, topic: str) -> int:
    return sum(_ends(fleet, topic, isolation="read_committed"))


def _ends(fleet: Relays, topic: str, *, isolation: str = "read_uncommitted") -> list[int]:
    """Return the end of each partition."""
    with reader(fleet.bootstrap, isolation=isolation) as consumer:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1]
            for p in sorted(partitions)
        ]


def _agrees(fleet: Relays, topic: str) -> None:
    """Wait until all that was committed is there, then compare."""
    wanted = committed(fleet.dsn, topic)
    until(
        lambda: len(consume(fleet.bootstrap, topic)) >= len(wanted), within=60, what="every event"
    )
    assert difference(wanted, consume(fleet.bootstrap, topic)) == AGREE
