"""Three brokers: the effects of cutting one of them off."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from dovecote.devstack.kafka.cluster import Cluster
from tests.support.fix_stack import topics_of
from tests.support.waiting import consume, patient, until

WITHIN = 40


@contextmanager
def led(cluster: Cluster) -> Iterator[tuple[str, int]]:
    """Yield a topic of one partition, and the number of the broker that leads it."""
    with topics_of(cluster) as make:
        name = make(1)
        until(lambda: isr(cluster, name) == {1, 2, 3}, within=WITHIN, what="three copies")
        try:
            yield name, leader(cluster.bootstrap, name)
        finally:
            cluster.heal()


def leader(bootstrap: str, name: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def told() -> dict[int, int]:  # not every broker knows a new topic at once
        found = admin.list_topics(name, timeout=patient(10)).topics[name].partitions
        return {number: each.leader for number, each in found.items()}

    return until(told, within=WITHIN, what="the topic's leader")[0]


def isr(cluster: Cluster, name: str) -> set[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    # A broker that does not know the topic yet reports no partitions.
    partitions = admin.list_topics(name, timeout=patient(10)).topics[name].partitions
    return {copy for partition in partitions.values() for copy in partition.isrs}


def others(cluster: Cluster, number: int) -> str:
    return ",".join(each.bootstrap for each in cluster.brokers if each.number != number)


def send(bootstrap: str, name: str, value: bytes, within: float = 60.0) -> None:
    """Send a record, acknowledged by all copies."""
    failed: list[object] = []

    def heard(error: object, _: object) -> None:
        if error:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.timeout.ms": int(patient(within) * 1000),
            "topic.metadata.refresh.interval.ms": 500,
            "socket.timeout.ms": int(patient(0.7) * 1000),
        }
    )
    producer.produce(name, value, on_delivery=heard)
    if producer.flush(patient(within + 5)) or failed:
        msg = f"not sent: {failed}"
        raise KafkaException(msg)


@pytest.mark.parametrize("reset", [False, True])
def test_a_leader_that_is_cut_off_from_its_peers_goes_on_for_its_clients_alone(
    cluster: Cluster, *, reset: bool
) -> None:
    with led(cluster) as (name, old):
        send(cluster.bootstrap, name, b"before")

        cluster.isolate(old, reset=reset)

        rest = others(cluster, old)
        until(lambda: leader(rest, name) != old, within=WITHIN, what="another leader")
        send(rest, name, b"after")
        # Its clients still see it as the leader, without anything that came later. A client that
        # has asked it once may ask another broker the next time.
        alone = cluster.broker(old).bootstrap
        until(lambda: leader(alone, name) == old, within=WITHIN, what="its own word")
        until(lambda: end(alone, name) == 1, within=WITHIN, what="the end of its own log")

        cluster.heal()

        until(
            lambda: values(cluster, name) == [b"before", b"after"],
            within=WITHIN,
            what="the word of the true leader",
        )


def values(cluster: Cluster, name: str) -> list[bytes | None]:
    return [record.value() for record in consume(cluster.bootstrap, name)]


def end(bootstrap: str, name: str) -> int | None:
    """Return where the log ends by a broker's own word; None: it gives none at the moment."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=patient(10))
    except KafkaException:
        return None
    else:
        return high
    finally:
        consumer.close()


def test_a_broker_that_is_cut_off_from_clients_replicates_what_others_are_sent(
    cluster: Cluster,
) -> None:
    with led(cluster) as (name, old):
        cluster.isolate(old, from_peers=False, from_clients=True)

        admin = AdminClient({"bootstrap.servers": cluster.broker(old).bootstrap})
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=1)
        until(lambda: isr(cluster, name) == {1, 2, 3}, within=WITHIN, what="three copies")
        with pytest.raises(KafkaException, match="not sent"):
            send(others(cluster, old), name, b"nobody else leads", within=3)

        cluster.heal()

        send(cluster.bootstrap, name, b"again")


def test_two_brokers_that_are_cut_off_from_each_other_both_stay_in_the_cluster(
    cluster: Cluster,
) -> None:
    with led(cluster) as (name, old):
        one, other = (each.number for each in cluster.brokers if each.number != old)
        cluster.cut(one, other)

        send(cluster.bootstrap, name, b"to all three")

        until(lambda: isr(cluster, name) == {1, 2, 3}, within=WITHIN, what="three copies")


def test_a_broker_that_was_killed_comes_back_with_all_copies(cluster: Cluster) -> None:
    with led(cluster) as (name, old):
        cluster.broker(old).kill()
        send(cluster.bootstrap, name, b"meanwhile")
        cluster.broker(old).start()
        until(lambda: isr(cluster, name) == {1, 2, 3}, within=WITHIN, what="three copies again")
        until(
            lambda: values(cluster, name) == [b"meanwhile"],
            within=WITHIN,
            what="what was sent meanwhile",
        )
