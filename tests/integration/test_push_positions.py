"""A group goes on from the position that is set, and is not moved while somebody reads with it."""

import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dovecote.push.api.positions import Positions
from dovecote.push.errors import Conflict, RequestRefused
from dovecote.push.rules.subscription.sections import At, Offsets
from dovecote.push.rules.subscription.subscription import subscription
from dovecote.push.store.lease import Lease
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.idle_push import LEAST, Client, idle, installed, push_settings
from tests.support.waiting import patient, until

FIRST = 1_700_000_000_000


@pytest.fixture
def filled(stack: Servers, topic: MakeTopic) -> str:
    name = topic(2)
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap})
    for number in range(10):
        producer.produce(name, b"x", partition=0, timestamp=FIRST + 1000 * number)
    assert producer.flush(patient(20)) == 0
    return name


def reading(topic: str, **changes: Any) -> Any:
    return subscription(
        {"id": topic, "topics": [topic], "endpoint": {"url": "http://hook.example"}, **changes}
    )


def test_a_group_is_set_to_both_ends_a_time_and_offsets(stack: Servers, filled: str) -> None:
    positions, found = Positions({"bootstrap.servers": stack.kafka.bootstrap}), reading(filled)
    at = At(time=datetime.fromtimestamp((FIRST + 3500) / 1000, UTC))
    late = At(time=datetime.fromtimestamp(time.time(), UTC))
    assert positions.reset(found, "earliest") == {filled: {"0": 0, "1": 0}}
    assert positions.reset(found, "latest") == {filled: {"0": 10, "1": 0}}
    assert positions.reset(found, at) == {filled: {"0": 4, "1": 0}}
    assert positions.reset(found, late) == {filled: {"0": 10, "1": 0}}
    before = At(time=datetime(1969, 12, 31, tzinfo=UTC))
    assert positions.reset(found, before) == {filled: {"0": 0, "1": 0}}
    assert positions.reset(found, Offsets(offsets={filled: {"0": 7}})) == {filled: {"0": 7}}
    some = reading(filled, topics=[], partitions=[{"topic": filled, "numbers": [0]}])
    assert positions.reset(some, "latest") == {filled: {"0": 10}}
    by_pattern = reading(filled, topics=[], pattern=f"{filled[:-1]}.")
    assert positions.reset(by_pattern, "earliest") == {filled: {"0": 0, "1": 0}}


def test_what_is_not_there_or_not_read_is_refused(stack: Servers, filled: str) -> None:
    positions = Positions({"bootstrap.servers": stack.kafka.bootstrap})
    with pytest.raises(RequestRefused, match="no topic 'missing'"):
        positions.reset(reading("missing"), "earliest")
    some = reading(filled, topics=[], partitions=[{"topic": filled, "numbers": [5]}])
    with pytest.raises(RequestRefused, match="no partition 5"):
        positions.reset(some, "earliest")
    with pytest.raises(RequestRefused, match="does not read partition 0 of 'other'"):
        positions.reset(reading(filled), Offsets(offsets={"other": {"0": 1}}))


def test_a_group_that_somebody_is_in_is_not_moved(stack: Servers, filled: str) -> None:
    positions, found = Positions({"bootstrap.servers": stack.kafka.bootstrap}), reading(filled)
    positions.wait_until_empty(found.group_id, seconds=patient(5))
    member = Consumer({"bootstrap.servers": stack.kafka.bootstrap, "group.id": found.group_id})
    try:
        member.subscribe([filled])
        until(lambda: member.poll(0.1) or member.assignment(), within=20, what="a member")
        with pytest.raises(Conflict, match="still has members"):
            positions.wait_until_empty(found.group_id, seconds=0.1)
        with pytest.raises(Conflict):
            positions.reset(found, "earliest")
    finally:
        member.close()
    positions.wait_until_empty(found.group_id, seconds=patient(5))


def test_one_that_is_made_anew_begins_where_it_says_although_its_last_reader_ends_later(
    stack: Servers, filled: str, database: str
) -> None:
    kafka, group = stack.kafka.bootstrap, f"{filled}.group"
    first, last = [TopicPartition(filled, 0, 2)], [TopicPartition(filled, 0, 10)]
    made = {**LEAST, "topics": [], "partitions": [{"topic": filled, "numbers": [0]}]}
    made |= {"group": group, "start": {"offsets": {filled: {"0": 2}}}}
    with (
        installed(database) as dsn,
        idle(push_settings(dsn, kafka)) as (running, _),
        closing(Consumer({"bootstrap.servers": kafka, "group.id": group})) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        client, reader = Client(running.at.port), Lease(dsn, "push", "slack")
        assert reader.take(lambda: None)  # as the reader of one that was just deleted
        asked = pool.submit(client, "POST", "/subscriptions", made)
        assert not wait([asked], timeout=2).done
        consumer.commit(offsets=last, asynchronous=False)  # the last thing that a reader does
        reader.close()
        assert asked.result(patient(40)).status == 201
        assert consumer.committed([TopicPartition(filled, 0)]) == first


def test_a_new_one_whose_group_somebody_is_in_is_refused_with_the_reason(
    stack: Servers, filled: str, database: str
) -> None:
    kafka, group = stack.kafka.bootstrap, f"{filled}.group"
    made = {**LEAST, "topics": [filled], "group": group}
    made |= {"start": {"offsets": {filled: {"0": 2}}}}
    with (
        installed(database) as dsn,
        idle(push_settings(dsn, kafka)) as (running, _),
        closing(Consumer({"bootstrap.servers": kafka, "group.id": group})) as member,
    ):
        member.subscribe([filled])
        until(lambda: member.poll(0.1) or member.assignment(), within=20, what="a member")
        refused = Client(running.at.port)("POST", "/subscriptions", made)
        assert refused.status == 409, refused
        assert "pause whatever reads with it" in refused.body["error"]
