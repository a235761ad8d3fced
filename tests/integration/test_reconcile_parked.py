"""Parked events on the way to another cluster, where their rows may be gone."""

from pathlib import Path

import psycopg
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from outbox import Event
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.parking import listed, parked
from tests.support.relaying import commit, event, ids, installed, relays
from tests.support.restoring import reconcile
from tests.support.topics import alter_topic
from tests.support.waiting import consume, patient, until

UNCOMPRESSED = {"compression.type": "none"}


def test_a_parked_event_without_a_row_holds_its_key_and_is_requeued_at_another_cluster(
    stack: Servers, topic: MakeTopic, tmp_path: Path, database: str
) -> None:
    name, dsn = topic(1, max_message_bytes="3000"), installed(database)
    folder = temporary_directory(server_user())
    with (
        Kafka(folder / "kafka", temporary=True) as other,
        relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet,
    ):
        relay = fleet.active(kafka=UNCOMPRESSED)
        large = Event(topic=name, type="Large", key="bad", value=" " * 5_000)
        behind, good = event(name, 1, key="bad"), event(name, 0, key="good")
        commit(dsn, large, behind, good)
        until(lambda: len(listed(fleet)) == 2, within=30, what="two are parked")
        assert relay.terminate() == 0
        # As the relay does with what is published and parked, after `retention`.
        with psycopg.connect(dsn) as conn:
            conn.execute("TRUNCATE outbox.events")
        there = AdminClient({"bootstrap.servers": other.bootstrap})
        small = NewTopic(name, 1, 1, config={"max.message.bytes": "3000"})
        there.create_topics([small])[name].result(patient(30))
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
