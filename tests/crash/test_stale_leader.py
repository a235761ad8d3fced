"""A broker that led the progress topic and is cut off from its peers answers from its own log."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.cluster import Cluster
from relay.errors import Outage
from relay.kafka.progress_topic import ProgressTopic
from relay.rules.places.progress import Cursor, Origin, Progress, at
from relay.rules.places.search import fence_key
from relay.rules.places.snapshot import Snapshot
from tests.support.waiting import patient, until

ORIGIN = Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1))


def progress(position: int) -> Progress:
    return at("shop", ORIGIN, Cursor(Snapshot(5, 5), Snapshot(9, 12), position))


def write(bootstrap: str, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
    """Write records in one transaction, with at least two brokers out of three."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "shop", "acks": "all"}
    )
    producer.init_transactions(patient(60))
    producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key, partition=0)
    producer.commit_transaction(patient(60))


def leader(bootstrap: str, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=patient(30))
    # A broker that has not heard of a new topic yet tells no partition of it.
    partition = found.topics[topic].partitions.get(0)
    return -1 if partition is None else int(partition.leader)


def test_a_leader_that_was_cut_off_is_not_believed(cluster: Cluster) -> None:
    topic = f"dovecote.progress.{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3, config={"cleanup.policy": "compact"})])[
        topic
    ].result(patient(60))
    until(lambda: leader(cluster.bootstrap, topic) > 0, within=60, what="a leader")
    write(cluster.bootstrap, topic, [(progress(1).key, progress(1).encode())])
    old = leader(cluster.bootstrap, topic)
    others = ",".join(each.bootstrap for each in cluster.brokers if each.number != old)
    cut_off = {"bootstrap.servers": cluster.broker(old).bootstrap}
    until(
        lambda: ProgressTopic(topic, cut_off, timeout=patient(5)).peek("shop") == progress(1),
        within=30,
        what="the commit at the broker that leads",
    )
    cluster.isolate(old)
    until(lambda: leader(others, topic) != old, within=90, what="another leader")
    newer, fence = replace(progress(2), term=2), uuid4().hex
    write(others, topic, [(newer.key, newer.encode())])
    write(others, topic, [(fence_key("shop", ""), fence.encode())])
    # Any reader of the end of a topic may get this answer …
    assert ProgressTopic(topic, cut_off, timeout=patient(5)).peek("shop") in {progress(1), newer}
    # … but a relay does not take it for the end: it waits, unless its client finds the others.
    with suppress(Outage):
        assert ProgressTopic(topic, cut_off, timeout=5).read("shop", fence=fence) == newer
    whole = {"bootstrap.servers": cluster.bootstrap}
    found = ProgressTopic(topic, whole, timeout=patient(60)).read("shop", fence=fence)
    assert found == newer
