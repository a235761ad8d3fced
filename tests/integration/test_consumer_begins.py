"""Where a consumer begins and goes on: at a first start, later, and after records expired."""

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

import dedup.consumer
from tests.support.consuming import committed, consuming, event, produce
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.topics import delete_topic, make_topic
from tests.support.waiting import patient, until

PROTOCOLS = [
    {"assignor": "range"},
    {"assignor": "cooperative-sticky"},
    {"protocol": "consumer"},
]
OFTEN = {"topic.metadata.refresh.interval.ms": "300"}

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda e: "-".join(e.values()))


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


def is_committed(kafka: str, name: str, offset: int, partition: int = 0) -> None:
    until(
        lambda: committed(kafka, name, partition)[0] == offset,
        within=20,
        what=f"{offset} committed in {name}/{partition}",
    )


def delete_before(kafka: str, name: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for each in admin.delete_records([TopicPartition(name, 0, offset)]).values():
        each.result(patient(20))


def add_partition(kafka: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(patient(20))


@each_protocol
def test_latest_is_committed_at_once_and_a_later_partition_begins_at_its_beginning(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any]
) -> None:
    name = topic()
    produce(kafka, *(event(name, "old", n) for n in range(10)))
    with consuming(kafka, name, start="latest", kafka=OFTEN, **protocol) as run:
        is_committed(kafka, name, 10)
        add_partition(kafka, name)
        produce(kafka, *(event(name, f"k{n}", n) for n in range(5)), partition=1)
        is_committed(kafka, name, 5, 1)
        assert sorted(run.ids) == [f"k{n}-{n}" for n in range(5)]


@each_protocol
def test_what_came_while_a_group_was_away_is_read_although_it_starts_with_latest(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any]
) -> None:
    name = topic()
    with consuming(kafka, name, start="latest", **protocol):
        is_committed(kafka, name, 0)
    produce(kafka, event(name, "k", 0))
    with consuming(kafka, name, start="latest", **protocol) as run:
        run.has_handled(1)


@each_protocol
def test_a_topic_that_a_new_member_brings_to_a_living_group_begins_at_its_beginning(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any]
) -> None:
    name, more = topic(), topic()
    produce(kafka, event(more, "k", 0))
    with consuming(kafka, name, start="latest", **protocol) as first:
        until(lambda: first.consumer.health.ready().ok, within=20, what="a member")
        with consuming(kafka, more, start="latest", group=name, **protocol) as second:
            second.has_handled(1)


@each_protocol
def test_a_pattern_is_the_beginning_of_a_name_and_a_later_topic_begins_at_its_beginning(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any]
) -> None:
    name, other = topic(), topic()
    produce(kafka, event(name, "old", 0), event(other, "other", 0))
    later = f"{name}.later"
    with consuming(
        kafka, name, start="latest", topics=[f"^{name}"], kafka=OFTEN, **protocol
    ) as run:
        is_committed(kafka, name, 1)
        make_topic(kafka, later)
        produce(kafka, event(later, "k", 0), event(name, "k", 1))
        run.has_handled(2)
        delete_topic(kafka, later)
        until(lambda: run.count("rebalances_total") > 2, within=20, what="given up")
        produce(kafka, event(name, "k", 2))
        run.has_handled(3)
        until(lambda: run.consumer.health.ready().reason == "progressing", within=20, what="well")
    assert sorted(run.ids) == ["k-0", "k-1", "k-2"]


def test_a_pattern_without_topics_is_said_and_waited_for(kafka: str, topic: MakeTopic) -> None:
    name = topic()
    with consuming(kafka, name, topics=[f"^{name}[.]"], start="latest", kafka=OFTEN) as run:
        why = f"progressing, but no topic matches ^{name}[.]"
        until(lambda: run.consumer.health.ready().reason == why, within=20, what="said")
        make_topic(kafka, f"{name}.new")
        produce(kafka, event(f"{name}.new", "k", 0))
        run.has_handled(1)
        until(lambda: run.consumer.health.ready().reason == "progressing", within=20, what="well")
    delete_topic(kafka, f"{name}.new")


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize(
    "protocol",
    [*PROTOCOLS, {"partitions": True}],
    ids=["range", "cooperative-sticky", "consumer", "partitions"],
)
def test_an_offset_that_has_expired_goes_on_at_the_earliest_and_says_how_many_are_lost(
    kafka: str,
    topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    protocol: dict[str, Any],
    start: str,
) -> None:
    name = topic()
    given = {"partitions": {name: [0]}} if "partitions" in protocol else protocol
    with consuming(kafka, name, start=start, **given):
        produce(kafka, event(name, "k", 0))
        is_committed(kafka, name, 1)
    produce(kafka, *(event(name, "k", n) for n in range(1, 10)))
    delete_before(kafka, name, 6)
    with consuming(kafka, name, start=start, **given) as run:
        is_committed(kafka, name, 10)
        assert run.ids == [f"k-{n}" for n in range(6, 10)]
        assert run.count("expired_total", topic=name) == 5
        said = "progressing, but 5 offsets were deleted before they were read"
        until(lambda: run.consumer.health.ready().reason == said, within=20, what="said")
    assert f"{name}/0: offsets 1 to 5 were deleted before they were read" in caplog.text


def test_a_log_that_is_empty_now_is_counted_and_committed(kafka: str, topic: MakeTopic) -> None:
    name = topic()
    with consuming(kafka, name):
        produce(kafka, event(name, "k", 0))
        is_committed(kafka, name, 1)
    produce(kafka, *(event(name, "k", n) for n in range(1, 10)))
    delete_before(kafka, name, 10)
    with consuming(kafka, name) as run:
        is_committed(kafka, name, 10)
        assert run.count("expired_total", topic=name) == 9
        assert not run.ids


def test_a_log_that_ends_before_the_offset_is_read_from_its_beginning(
    kafka: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    produce(kafka, *(event(name, "k", n) for n in range(3)))
    with closing(KafkaConsumer({"bootstrap.servers": kafka, "group.id": name})) as outside:
        outside.commit(offsets=[TopicPartition(name, 0, 50)], asynchronous=False)
    with consuming(kafka, name, start="latest") as run:
        is_committed(kafka, name, 3)
        assert run.ids == ["k-0", "k-1", "k-2"]
    assert f"{name}/0 continues at an earlier offset than before" in caplog.text


def test_idle_partitions_without_members_are_committed_again(
    kafka: str, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dedup.consumer, "RENEWED_SECONDS", 0.5)
    name = topic()
    produce(kafka, event(name, "k", 0))
    with consuming(kafka, name, partitions={name: [0]}) as run:
        is_committed(kafka, name, 1)
        before = run.count("commits_total", outcome="ok")
        until(lambda: run.count("commits_total", outcome="ok") > before + 1, within=20, what="two")


def test_a_topic_that_is_read_whole_beside_explicit_partitions_may_grow(
    kafka: str, topic: MakeTopic
) -> None:
    name, other = topic(), topic()
    topics, named = [name, other], {other: [0]}
    with consuming(kafka, name, topics=topics, partitions=named, kafka=OFTEN) as run:
        produce(kafka, event(name, "k", 0), event(other, "o", 0))
        is_committed(kafka, name, 1)
        add_partition(kafka, name)
        produce(kafka, event(name, "new", 0), partition=1)
        is_committed(kafka, name, 1, partition=1)
        produce(kafka, event(name, "k", 1), event(other, "o", 1), partition=0)
        run.has_handled(5)
    assert sorted(run.ids) == ["k-0", "k-1", "new-0", "o-0", "o-1"]
