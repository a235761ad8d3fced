"""Questions to Kafka while a query rests."""

from confluent_kafka import Producer

from dovecote.devstack import Stack
from spark_jobs.query.resting import Arrivals
from tests.support.fix_stack import MakeTopic
from tests.support.waiting import patient, until


def test_something_has_come_if_a_partition_ends_elsewhere_than_was_read(
    stack: Stack, topic: MakeTopic
) -> None:
    name = topic(2)
    bootstrap = {"bootstrap.servers": stack.kafka.bootstrap}
    arrivals = Arrivals(bootstrap)

    # Kafka does not answer until a new topic has its leaders.
    until(lambda: not arrivals.has_after({name: {0: 0, 1: 0}}), within=20, what="an empty topic")

    producer = Producer(bootstrap)
    producer.produce(name, b"x", partition=1)
    assert producer.flush(patient(30)) == 0
    assert arrivals.has_after({name: {0: 0, 1: 0}})
    assert not arrivals.has_after({name: {0: 0, 1: 1}})


def test_what_no_transaction_has_committed_has_not_come(stack: Stack, topic: MakeTopic) -> None:
    name = topic()
    bootstrap = {"bootstrap.servers": stack.kafka.bootstrap}
    producer = Producer({**bootstrap, "transactional.id": name})
    producer.init_transactions(patient(30))
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.flush(patient(30))
    arrivals = Arrivals(bootstrap)

    until(lambda: not arrivals.has_after({name: {0: 0}}), within=20, what="nothing committed")

    producer.commit_transaction(patient(30))
    # Kafka answers a commit before its markers are written.
    until(lambda: arrivals.has_after({name: {0: 0}}), within=20, what="what was committed")


def test_something_may_have_come_if_kafka_does_not_say() -> None:
    assert Arrivals({"bootstrap.servers": "127.0.0.1:1"}).has_after({"t": {0: 0}})
