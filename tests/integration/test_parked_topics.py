"""Events whose topics are missing are parked, and hold up nobody."""

import json
import time
from pathlib import Path

import pytest

from dovecote.devstack import Stack
from outbox import Event
from tests.support.fix_stack import MakeTopic
from tests.support.parking import listed, parked, ready
from tests.support.relaying import Relays, agrees, commit, event, installed, published, relays
from tests.support.topics import delete_topic, make_topic
from tests.support.waiting import consume, patient, until


def are_listed(fleet: Relays, field: str, wanted: list[object]) -> None:
    until(
        lambda: [row[field] for row in listed(fleet)] == wanted,
        within=10,
        what=f"{field}: {wanted}",
    )


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_topics_that_are_missing_hold_up_nobody(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, capture: str
) -> None:
    name = topic(1)
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        relay = fleet.active(capture=capture)
        commit(fleet.dsn, event(name, 0))
        published(fleet, name, 1)
        lost = [event(f"{fleet.name}-missing-{n}", n) for n in range(6)]
        asked = time.monotonic()
        commit(fleet.dsn, *lost, event(name, 1))
        published(fleet, name, 2)
        # It was 95 s. Everything takes longer on a busy machine.
        assert time.monotonic() - asked < patient(5)
        are_listed(fleet, "id", [each.id for each in lost])
        # A service that puts an id into the names of topics.
        for n in range(5):
            many = [event(f"{fleet.name}-{n}-{m}", m) for m in range(400)]
            commit(fleet.dsn, *many, event(name, 2 + n))
        published(fleet, name, 7)
        until(lambda: len(listed(fleet, "--limit", "3000")) == 2_006, within=30, what="all")
        until(lambda: ready(relay), within=10, what="ready")
        assert relay.log.count("WARNING dovecote.relay: parked") <= 10


@pytest.mark.parametrize(
    ("mode", "capture"),
    [("exactly_once", "table"), ("at_least_once", "table"), ("exactly_once", "wal")],
)
def test_what_is_parked_for_a_topic_that_is_about_to_be_made_is_published_when_it_is(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, mode: str, capture: str
) -> None:
    name = topic(1)
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        made = f"{fleet.name}-made"
        fleet.active(mode=mode, capture=capture, park_after="1h")
        commit(fleet.dsn, event(made, 0, key="a"), event(made, 0, key="b"), event(name, 0))
        published(fleet, name, 1)
        # The next active relay goes on waiting.
        fleet.started[0].kill()
        relay = fleet.active(mode=mode, capture=capture, park_after="1h")
        commit(fleet.dsn, event(made, 1, key="a"), event(name, 1))
        published(fleet, name, 2)
        make_topic(fleet.bootstrap, made)
        commit(fleet.dsn, *[event(made, n, key=k) for n in range(2, 50) for k in "ab"])
        relay.until_logged(f"can publish to {made} now")
        agrees(fleet, made)
        are_listed(fleet, "id", [])


def test_a_topic_that_is_not_made_in_time_waits_for_a_person(
    fleet: Relays, topic: MakeTopic
) -> None:
    name, missing = topic(1), f"{fleet.name}-missing"
    relay = fleet.active(park_after="1s")
    first = event(missing, 0, key="k0")
    commit(fleet.dsn, first)
    relay.until_logged(f"parked event {first.id} for topic '{missing}'")
    relay.until_logged("create the topic")
    commit(fleet.dsn, *[event(missing, n, key=f"k{n % 3}") for n in range(1, 40)], event(name, 1))
    published(fleet, name, 1)
    assert len(listed(fleet)) == 40
    assert {row["code"] for row in listed(fleet)} <= {"UNKNOWN_TOPIC_OR_PART", "BEHIND"}
    # A requeue does not make anybody wait without need either.
    asked = time.monotonic()
    assert parked(fleet, "requeue", "--topic", missing, "--wait").returncode == 1
    assert time.monotonic() - asked < patient(5)
    assert max(row["attempt"] for row in listed(fleet)) == 2
    make_topic(fleet.bootstrap, missing)
    done = parked(fleet, "requeue", "--topic", missing, "--wait")
    assert (done.returncode, done.stdout) == (0, "requeued 40 events\n"), done.stderr + relay.log
    commit(fleet.dsn, event(missing, 40, key="k1"), event(missing, 40, key="new"))
    agrees(fleet, missing)
    assert relay.terminate() == 0


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_a_topic_that_is_deleted_while_it_is_published_to_holds_up_others_for_a_moment(
    fleet: Relays, topic: MakeTopic, mode: str
) -> None:
    name, gone = topic(1), f"{fleet.name}-gone"
    make_topic(fleet.bootstrap, gone)
    fleet.active(mode=mode, park_after="0s")
    commit(fleet.dsn, event(name, 0), event(gone, 0))
    published(fleet, gone, 1)
    delete_topic(fleet.bootstrap, gone)
    asked = time.monotonic()
    commit(fleet.dsn, event(gone, 1), event(name, 1))
    published(fleet, name, 2)
    # It was 66 s.
    assert time.monotonic() - asked < patient(15)
    until(lambda: listed(fleet), within=15, what="the event is parked")
    assert [row["code"] for row in listed(fleet)] == ["UNKNOWN_TOPIC_OR_PART"]


def test_topics_that_the_relay_does_not_serve_are_parked_whoever_writes_there(
    fleet: Relays, topic: MakeTopic
) -> None:
    served, other = topic(1), topic(1)
    progress = topic(1, cleanup_policy="compact")
    relay = fleet.active(
        progress_topic=progress,
        environ={"DOVECOTE_RELAY_TOPICS": json.dumps([served, progress, "dovecote*"])},
    )
    forged = Event(topic=progress, type="T", key=fleet.name, value={"format": 1})
    commit(fleet.dsn, forged, event(other, 1), event(served, 1), event(served, 2))
    published(fleet, served, 2)
    are_listed(fleet, "code", ["TOPIC_RESERVED", "TOPIC_NOT_ALLOWED"])
    assert parked(fleet, "requeue", "--all", "--wait").returncode == 1
    are_listed(fleet, "attempt", [2, 2])
    assert consume(fleet.bootstrap, other) == []
    values = [message.value() for message in consume(fleet.bootstrap, progress)]
    assert forged.value_bytes() not in values
    until(lambda: ready(relay), within=10, what="ready")
