"""The features of Queue over HTTP: bundles of each partition, its bodies, brokers by name."""

import time
from typing import Any

import pytest
from confluent_kafka import Producer

from dovecote.push.rules.sending.original import OriginalSubscription
from dovecote.push.rules.sending.ports import Work
from tests.support.consuming import committed, event, produce
from tests.support.delivering import Endpoint, Reply, Request, all_committed, pushing, subscribed
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import consume, patient, until

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def number(request: Request) -> int:
    return int(request.headers["qoh-message-number"])


@pytest.mark.parametrize(
    ("period", "begun"),
    [
        # The finished prefix makes room for new requests …
        ("50ms", 15),
        # … but without a period nothing begins before the whole bundle is finished.
        ("0s", 10),
    ],
)
def test_the_finished_prefix_is_committed_and_no_more_than_a_bundle_is_begun_beyond_it(
    stack: Servers,
    topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    period: str,
    begun: int,
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, None, n) for n in range(30)))
    stuck = {5}

    def answer(request: Request) -> Reply:
        return Reply(500 if number(request) in stuck else 200)

    order = {"type": "per_partition", "concurrency_factor": 10, "auto_commit_period": period}
    retry = {"type": "fixed", "delay": "20ms"}
    with Endpoint(answer) as endpoint:
        work = subscribed(
            name, endpoint.url, order=order, retry=retry, metadata_headers=True, group=name
        )
        with pushing(kafka, work):
            until(lambda: committed(kafka, name)[0] == 5, within=20, what="the prefix")
            endpoint.has_got(begun + 25)
            assert {number(r) for r in endpoint.requests} == set(range(begun))
            # A record that is sent again and again is visible.
            seen = f"{name}/0/5 failed (attempt "
            until(lambda: seen in caplog.text, within=5, what="it is in the log")
            stuck.clear()
            until(lambda: committed(kafka, name)[0] == 30, within=20, what="all")
        assert {number(r) for r in endpoint.requests} == set(range(30))


def test_the_factor_is_that_of_the_topic_and_holds_for_each_of_its_partitions_apart(
    stack: Servers, topic: MakeTopic
) -> None:
    one, other, kafka = topic(2), topic(1), stack.kafka.bootstrap
    for partition in (0, 1):
        events = [event(one, f"p{partition}", n) for n in range(8)]
        produce(kafka, *events, partition=partition)
    produce(kafka, *(event(other, "other", n) for n in range(15)))
    stuck = {"p0-1"}

    def answer(request: Request) -> Reply:
        return Reply(500 if request.event_id in stuck else 200)

    order = {
        "type": "per_partition",
        "concurrency_factor": 2,
        "topics": {other: {"concurrency_factor": 5}},
    }
    retry = {"type": "fixed", "delay": "20ms"}
    with Endpoint(answer) as endpoint:
        endpoint.gate.clear()
        work = subscribed(one, endpoint.url, topics=[one, other], order=order, retry=retry)
        with pushing(kafka, work):
            endpoint.has_got(2 + 2 + 5)
            endpoint.gate.set()
            all_committed(kafka, one, 1, id_=one)
            all_committed(kafka, other, 0, id_=one)
            # A partition that is held up has a queue of its own.
            of_stuck = {r.event_id for r in endpoint.requests}
            assert {id_ for id_ in of_stuck if id_.startswith("p0")} == {"p0-0", "p0-1"}
            stuck.clear()
            all_committed(kafka, one, 0, id_=one)
        assert endpoint.most_in_flight == 9


def test_a_body_of_the_original_is_delivered_from_the_broker_that_it_names(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    body: dict[str, Any] = {
        "id": name,
        "group": {"id": f"{name}.group"},
        "broker": "east",
        "topics": [{"name": name, "config": {"concurrencyFactor": 1, "autoCommitPeriodMs": 100}}],
        "subscriptionMethod": {
            "type": "http",
            "delayOnErrorMs": 10,
            "retryBeforeCommit": 1,
            "additionalHeaders": {"Content-Type": "application/json", "X-Token": "t"},
        },
    }
    # In the console producer's form: neither key nor headers.
    producer = Producer({"bootstrap.servers": kafka})
    for text in (b'{"text": "one"}', b'{"text": "two"}'):
        producer.produce(name, text)
    assert producer.flush(patient(20)) == 0

    def answer(request: Request) -> Reply:
        return Reply(404 if b"one" in request.body else 200, body=b"ok")

    with Endpoint(answer) as endpoint:
        body["subscriptionMethod"]["uri"] = endpoint.url
        found = OriginalSubscription.model_validate(body).read()
        unknown = subscribed("nowhere", endpoint.url, broker="west")
        brokers = {"default": NOWHERE, "east": {"bootstrap.servers": kafka}}
        with pushing("", Work(found, 1), unknown, brokers=brokers) as push:
            endpoint.has_got(3)
            until(
                lambda: committed(kafka, name, group=f"{name}.group")[0] == 2,
                within=20,
                what="all is committed",
            )
            why = "no broker 'west' in the settings"
            until(lambda: why in push.snapshot("nowhere").trouble, within=10, what=why)
        one, two = b'{"text": "one"}', b'{"text": "two"}'
        assert [request.body for request in endpoint.requests] == [one, one, two]
        told = endpoint.requests[-1]
        assert (told.method, told.target) == ("POST", "/hook")
        assert told.headers["content-type"] == "application/json"
        assert told.headers["x-token"] == "t"
        assert told.headers["qoh-broker"] == "east"
        assert told.headers["qoh-consumer"] == f"{name}_{name}.group"
        assert told.headers["qoh-message-number"] == "1"
    # A record that was given up goes to that broker, too.
    (letter,) = consume(kafka, found.dead_letters)
    assert letter.value() == one


def test_what_is_unsubscribed_has_its_requests_answered_and_committed(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, "k", n) for n in range(3)))
    with Endpoint() as endpoint:
        endpoint.gate.clear()
        with pushing(kafka, subscribed(name, endpoint.url, group=name)) as push:
            endpoint.has_got(1)
            push.engine.reconcile([])
            endpoint.gate.set()
            until(lambda: committed(kafka, name)[0] == 1, within=20, what="the first")
        assert [r.event_id for r in endpoint.requests] == ["k-0"]


def test_subscriptions_with_nothing_to_do_wait_for_it_and_do_not_look_all_the_time(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, event(name, "k", 0))
    with Endpoint() as endpoint:
        works = [subscribed(f"{name}-{n}", endpoint.url, topics=[name]) for n in range(5)]
        with pushing(kafka, *works):
            endpoint.has_got(5)
            for work in works:
                all_committed(kafka, name, id_=work.subscription.id)
            began, until_then = time.process_time(), time.monotonic() + 2
            until(lambda: time.monotonic() > until_then, within=10, what="two seconds are over")
            # An engine that polled would take two seconds, and five with as many cores.
            assert time.process_time() - began < 1.2
