"""Parked events on the way to another cluster and back, where their rows may be gone."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from outbox import Event
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.parking import listed, parked
from tests.support.relaying import commit, event, ids, installed, published, relays
from tests.support.restoring import cut_short, reconcile
from tests.support.topics import alter_topic
from tests.support.waiting import consume, patient, until

ACCEPT = "--accept-restored"
UNCOMPRESSED = {"compression.type": "none"}


@pytest.fixture(scope="module")
def other() -> Iterator[Kafka]:
    """Another cluster, for all tests here."""
    folder = temporary_directory(server_user())
    with Kafka(folder / "kafka", temporary=True) as running:
        yield running


def small_topic(kafka: Kafka, name: str) -> None:
    there = AdminClient({"bootstrap.servers": kafka.bootstrap})
    small = NewTopic(name, 1, 1, config={"max.message.bytes": "3000"})
    there.create_topics([small])[name].result(patient(30))


def test_a_parked_event_without_a_row_holds_its_key_and_is_requeued_at_another_cluster(
    stack: Servers, topic: MakeTopic, tmp_path: Path, database: str, other: Kafka
) -> None:
    name, dsn = topic(1, max_message_bytes="3000"), installed(database)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active(kafka=UNCOMPRESSED)
        large = Event(topic=name, type="Large", key="bad", value=" " * 5_000)
        behind, good = event(name, 1, key="bad"), event(name, 0, key="good")
        commit(dsn, large, behind, good)
        until(lambda: len(listed(fleet)) == 2, within=30, what="two are parked")
        assert relay.terminate() == 0
        # As the relay does with what is published and parked, after `retention`.
        with psycopg.connect(dsn) as conn:
            conn.execute("TRUNCATE outbox.events")
        small_topic(other, name)
        fleet.bootstrap = other.bootstrap
        assert reconcile(fleet, "--accept-cluster")[0]["done"]
        fleet.active(kafka=UNCOMPRESSED)
        later = event(name, 2, key="bad")
        commit(dsn, later, event(name, 3, key="good"))
        until(lambda: len(consume(fleet.bootstrap, name)) > 0, within=30, what="it publishes")
        until(lambda: len(listed(fleet)) == 3, within=30, what="its key is still held")
        alter_topic(fleet.bootstrap, name, max_message_bytes="10000")
        done = parked(fleet, "requeue", large.id, "--wait")
        assert (done.returncode, done.stdout) == (0, "requeued 3 events\n"), done.stderr
        bad = {large.id, behind.id, later.id}
        found = [each for each in ids(consume(fleet.bootstrap, name)) if each in bad]
        assert found == [large.id, behind.id, later.id]


def test_parked_events_hold_their_keys_after_a_move_that_was_cut_short_and_given_up(
    stack: Servers,
    topic: MakeTopic,
    tmp_path: Path,
    database: str,
    other: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, dsn = topic(1, max_message_bytes="3000"), installed(database)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active(retention="1h", kafka=UNCOMPRESSED)
        large = Event(topic=name, type="Large", key="bad", value=" " * 5_000)
        behind, good = event(name, 1, key="bad"), event(name, 0, key="good")
        commit(dsn, large, behind, good)
        until(lambda: len(listed(fleet)) == 2, within=30, what="two are parked")
        assert relay.terminate() == 0
        small_topic(other, name)
        fleet.bootstrap = other.bootstrap
        cut_short(fleet, "before it lets relays go on", monkeypatch, restored=False)
        fleet.bootstrap = stack.kafka.bootstrap
        # The events of the old cluster may be fewer than those that the command has parked.
        refused = fleet.start(retention="1h", kafka=UNCOMPRESSED)
        assert refused.wait() == 1
        assert ACCEPT in refused.log
        assert reconcile(fleet, ACCEPT, retention="1h")[0]["done"]
        fleet.active(retention="1h", kafka=UNCOMPRESSED)
        later = event(name, 2, key="bad")
        commit(dsn, later)
        until(lambda: len(listed(fleet)) == 3, within=30, what="its key is still held")
        alter_topic(fleet.bootstrap, name, max_message_bytes="10000")
        done = parked(fleet, "requeue", large.id, "--wait")
        assert (done.returncode, done.stdout) == (0, "requeued 3 events\n"), done.stderr
        found = ids(consume(fleet.bootstrap, name))
        assert found == [good.id, large.id, behind.id, later.id]


def test_what_another_cluster_has_stays_parked_until_a_move_there_has_ended(
    stack: Servers,
    topic: MakeTopic,
    tmp_path: Path,
    database: str,
    other: Kafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, dsn = topic(1, max_message_bytes="10000"), installed(database)
    first, second = stack.kafka.bootstrap, other.bootstrap
    with relays(tmp_path, dsn, first) as fleet:
        relay = fleet.active(retention="1h", kafka=UNCOMPRESSED)
        large = Event(topic=name, type="Large", key="bad", value=" " * 5_000)
        behind, good = event(name, 1, key="bad"), event(name, 0, key="good")
        commit(dsn, large, behind, good)
        published(fleet, name, 3)
        assert relay.terminate() == 0
        small_topic(other, name)
        fleet.bootstrap = second
        assert reconcile(fleet, "--accept-cluster", kafka=UNCOMPRESSED)[0]["done"]
        relay = fleet.active(kafka=UNCOMPRESSED)
        assert len(listed(fleet)) == 2, "the second cluster takes less"
        assert relay.terminate() == 0
        with psycopg.connect(dsn) as conn:
            conn.execute("TRUNCATE outbox.events")
        later = event(name, 2, key="bad")
        commit(dsn, later)
        # On the way back to the first one, which has both, the move is given up.
        fleet.bootstrap = first
        cut_short(fleet, "before it names the cluster", monkeypatch, restored=False)
        fleet.bootstrap = second
        assert reconcile(fleet, ACCEPT, retention="1h", kafka=UNCOMPRESSED)[0]["done"]
        relay = fleet.active(retention="1h", kafka=UNCOMPRESSED)
        until(lambda: len(listed(fleet)) == 3, within=30, what="its key is held there")
        assert [each["id"] for each in listed(fleet)] == [large.id, behind.id, later.id]
        assert ids(consume(second, name)) == [good.id]
        assert relay.terminate() == 0
        # A move that ends needs them no more, and they have held up nothing.
        fleet.bootstrap = first
        (done,) = reconcile(fleet, "--accept-cluster", retention="1h", kafka=UNCOMPRESSED)
        assert done["published_already"] >= 2
        fleet.active(retention="1h", kafka=UNCOMPRESSED)
        assert listed(fleet) == []
        assert ids(consume(first, name)) == [large.id, behind.id, good.id, later.id]
