"""A topic that was deleted and made anew has other events at the same places."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.consumer import Consumer
from dedup.inbox import schema as inbox_schema
from dedup.rules.lanes.offset_metadata import encode, topic_of
from dedup.rules.policies.results import Dead, Retry
from outbox import Event
from tests.support.consuming import Consuming, committed, consuming, end_of, settings
from tests.support.delivering import Endpoint, pushing, subscribed
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.topics import remake_topic
from tests.support.waiting import consume, patient, until

OFTEN = {"topic.metadata.refresh.interval.ms": "300"}
PROTOCOLS = [{"assignor": "range"}, {"assignor": "cooperative-sticky"}, {"protocol": "consumer"}]
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda e: "-".join(e.values()))

OTHER = "a" * 22
"""An id that no topic has."""


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


def send(kafka: str, topic: str, *values: str, partition: int = 0) -> None:
    """Produce records as a producer does that knows nothing of CloudEvents."""
    producer = Producer({"bootstrap.servers": kafka})
    for value in values:
        producer.produce(topic, f'"{value}"', value, partition=partition)
    assert producer.flush(patient(20)) == 0


def commit(kafka: str, group: str, topic: str, offset: int, metadata: str) -> None:
    place = TopicPartition(topic, 0, offset, metadata)
    admin = AdminClient({"bootstrap.servers": kafka})
    asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [place])])
    asked[group].result(patient(20))


@contextmanager
def running(consumer: Consumer) -> Iterator[None]:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(consumer.run)
        try:
            yield
        finally:
            consumer.stop()
        run.result(patient(30))


def handled(run: Consuming, values: list[str]) -> bool:
    return {*values} <= {each.value for each in run.handled}


def life(number: int, count: int) -> list[str]:
    return [f"{number}-{n}" for n in range(count)]


@each_protocol
def test_a_topic_made_anew_under_a_running_consumer_is_read_from_its_beginning(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It gets more records than were read, so no offset is out of its range."""
    name = topic()
    send(kafka, name, *life(1, 5))
    with (
        caplog.at_level(logging.WARNING),
        consuming(kafka, name, kafka=OFTEN, start="latest", group=f"{name}.other"),
        consuming(kafka, name, kafka=OFTEN, **protocol) as run,
    ):
        until(lambda: committed(kafka, name)[0] == 5, within=20, what="the first life is read")
        remake_topic(kafka, name)
        send(kafka, name, *life(2, 8))
        until(lambda: handled(run, life(2, 8)), within=60, what="the second life is handled")
        known = {each.id.split("/")[0] for each in run.handled if each.value == "2-0"}

        def is_committed() -> bool:
            offset, metadata = committed(kafka, name)
            return offset == 8 and topic_of(metadata) in known

        until(is_committed, within=20, what="its position is committed")
    assert [each.value for each in run.handled][:5] == life(1, 5)


@each_protocol
def test_a_topic_made_anew_with_fewer_partitions_under_a_handler_gets_the_others_back(
    kafka: str, topic: MakeTopic, protocol: dict[str, Any]
) -> None:
    name, admin = topic(2), AdminClient({"bootstrap.servers": kafka})
    ended, began = threading.Event(), threading.Event()

    def handle(event: Event) -> None:
        if event.value == "1-2":
            began.set()
            assert ended.wait(patient(60))

    send(kafka, name, *life(1, 5), partition=1)
    with consuming(kafka, name, handle, kafka=OFTEN, **protocol) as run:
        assert began.wait(patient(20))
        remake_topic(kafka, name)
        send(kafka, name, *life(2, 3))
        until(lambda: handled(run, life(2, 3)), within=60, what="the other partition goes on")
        ended.set()
        grown = admin.create_partitions([NewPartitions(name, 2)])
        grown[name].result(patient(20))
        # More than the first life had, so no offset is out of its range.
        send(kafka, name, *life(3, 7), partition=1)
        until(lambda: handled(run, life(3, 7)), within=60, what="it is read from its beginning")


def test_an_offset_of_an_earlier_topic_is_left_and_said(
    kafka: str, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    send(kafka, name, *life(1, 8))
    commit(kafka, name, name, 5, encode(5, [(6, 8)], topic_id=OTHER)[0])
    with consuming(kafka, name, start="latest") as run:
        run.has_handled(8)
        until(lambda: committed(kafka, name)[0] == 8, within=20, what="all is read")
    assert [each.value for each in run.handled] == life(1, 8)
    assert f"{name}/0 begins at its beginning: the topic was deleted and made anew" in caplog.text


@pytest.mark.parametrize("metadata", ["", "an operator's note"])
def test_an_offset_that_names_no_topic_is_taken_and_gets_its_id(
    kafka: str, topic: MakeTopic, metadata: str
) -> None:
    name = topic()
    send(kafka, name, *life(1, 8))
    commit(kafka, name, name, 5, metadata)
    with consuming(kafka, name) as run:
        run.has_handled(3)
    assert [each.value for each in run.handled] == life(1, 8)[5:]
    commit(kafka, name, name, 8, metadata)
    with consuming(kafka, name):
        until(lambda: topic_of(committed(kafka, name)[1]) is not None, within=20, what="its id")
    offset, told = committed(kafka, name)
    assert offset == 8
    assert run.handled[0].id == f"{topic_of(told)}/0/5"


def test_the_inbox_knows_the_events_of_each_life(
    kafka: str, topic: MakeTopic, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = conninfo_to_dict(database)
    monkeypatch.setenv("PGPASSWORD", str(parts.pop("password", "")))
    dsn = make_conninfo(**{name: str(each) for name, each in parts.items()})
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (value text)")
    name = topic()

    def handle(event: Event, tx: psycopg.Connection) -> None:
        tx.execute("INSERT INTO effects VALUES (%s)", [event.value])

    def effects() -> list[str]:
        with psycopg.connect(database) as conn:
            rows = conn.execute("SELECT value FROM effects ORDER BY 1").fetchall()
        return [value for (value,) in rows]

    for number in (1, 2):
        send(kafka, name, *life(number, 5))
        for _ in range(2):  # the second time, all of them come again
            with running(Consumer(settings(kafka, name, inbox={"dsn": dsn}), handle)):
                until(lambda: committed(kafka, name)[0] == 5, within=20, what="all is read")
            assert effects() == [each for n in range(number) for each in life(n + 1, 5)]
            commit(kafka, name, name, 0, "")
        remake_topic(kafka, name)


def test_copies_on_retry_topics_and_dead_letters_keep_what_their_event_is_known_by(
    kafka: str, topic: MakeTopic
) -> None:
    name, retry, dead = topic(), topic(), topic()
    seen: list[tuple[str, str]] = []

    def handle(event: Event) -> Retry | Dead:
        seen.append((event.source, event.id))
        return Retry("once more") if len(seen) < 3 else Dead("no")

    send(kafka, name, "1-0")
    retries = {
        "tiers": [{"topic": retry, "wait": "0s"}],
        "dead_letter_topic": dead,
        "base": "20ms",
        "ceiling": "50ms",
    }
    with consuming(kafka, name, handle, retries=retries) as run:
        run.has_handled(3)
        until(lambda: end_of(kafka, dead) == 1, within=20, what="a dead letter")
    (letter,) = consume(kafka, dead)
    told = dict(letter.headers() or ())
    assert {(name, f"{topic_of(committed(kafka, name)[1])}/0/0")} == {*seen}
    assert (told["ce_source"], told["ce_id"]) == tuple(each.encode() for each in seen[0])


def test_push_sends_the_events_of_both_lives_under_ids_of_their_own(
    kafka: str, topic: MakeTopic
) -> None:
    name = topic()
    send(kafka, name, *life(1, 5))
    brokers = {"default": {"bootstrap.servers": kafka, **OFTEN}}
    with (
        Endpoint() as endpoint,
        pushing(kafka, subscribed(name, endpoint.url), brokers=brokers),
    ):
        endpoint.has_got(5)
        remake_topic(kafka, name)
        send(kafka, name, *life(2, 8))
        until(
            lambda: {f'"{each}"' for each in life(2, 8)} <= {*endpoint.bodies},
            within=60,
            what="the second life at the endpoint",
        )
    ids: dict[str, set[str]] = {}
    for request in endpoint.requests:
        ids.setdefault(request.headers["webhook-id"], set()).add(request.body.decode())
    assert len(ids) >= 13
    assert all(len(bodies) == 1 for bodies in ids.values())
