"""Subscriptions that are held, disabled, asked or shared report it and lose nothing."""

from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.consuming import event, produce
from tests.support.delivering import (
    Endpoint,
    Reply,
    Request,
    all_committed,
    first_attempts,
    install_held,
    kept,
    pushing,
    subscribed,
)
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.raw_producing import produce_raw
from tests.support.topics import delete_topic, make_topic
from tests.support.waiting import patient, until


def test_410_disables_the_subscription_and_loses_nothing(stack: Servers, topic: MakeTopic) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, event(name, "k", 0), event(name, "k", 1))
    gone = Reply(410)
    with Endpoint(lambda _: gone) as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url)) as push:
            until(lambda: name in push.book.disabled, within=20, what="disabled")
            assert push.book.disabled[name].startswith(f"{endpoint.url}: ")
            until(lambda: "410" in push.snapshot(name).trouble, within=10, what="its reason")
        assert len(endpoint.requests) == 1
        gone = Reply()
        with pushing(kafka, subscribed(name, endpoint.url)):
            endpoint.has_got(3)
            all_committed(kafka, name)
        assert [r.event_id for r in endpoint.requests] == ["k-0", "k-0", "k-1"]


def test_attempts_are_remembered_by_whoever_goes_on(
    stack: Servers, topic: MakeTopic, database: str
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    held = install_held(database)
    produce(kafka, event(name, "k", 0))
    retry = {"type": "fixed", "delay": "1s", "resends": 2}
    with Endpoint(lambda _: Reply(500)) as endpoint:
        work = subscribed(name, endpoint.url, retry=retry)
        with pushing(kafka, work, held=held) as first:
            endpoint.has_got(1)
            until(lambda: kept(database) == 1, within=10, what="kept")
        with pushing(kafka, work, held=held) as second:
            endpoint.has_got(3)
            all_committed(kafka, name)
            until(lambda: kept(database) == 0, within=10, what="forgotten")
        numbers = [a.number for a in (*first.book.attempts, *second.book.attempts)]
        assert numbers == [1, 2, 3]
        assert len(endpoint.requests) == 3


@pytest.mark.parametrize("number", [b"-3000000000", b"-2000000000", b"2147483647", b"9" * 30])
def test_a_forged_attempt_holds_no_offset_back(
    stack: Servers, topic: MakeTopic, database: str, number: bytes
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    held, once = install_held(database), iter([Reply(503)])
    forged = [(b"dovecote_attempt", number), (b"dovecote_round", number)]
    produce_raw(kafka, name, b"k", b"poison", [(b"ce_id", b"e1"), *forged])
    produce(kafka, *(event(name, f"k{n}", n) for n in range(5)))
    with Endpoint(lambda _: next(once, Reply())) as endpoint:
        work = subscribed(name, endpoint.url, retry={"type": "backoff", "base": "10ms"})
        with pushing(kafka, work, held=held) as push:
            all_committed(kafka, name)
            assert not push.snapshot(name).dead


def test_an_endpoint_is_asked_first_where_that_is_wanted(stack: Servers, topic: MakeTopic) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    agreed: dict[str, str] = {}

    def answer(request: Request) -> Reply:
        return Reply(200, agreed if request.method == "OPTIONS" else {})

    produce(kafka, *(event(name, f"k{n}", n) for n in range(5)))
    with Endpoint(answer) as endpoint:
        work = subscribed(name, endpoint.url, endpoint={"handshake": True})
        with pushing(kafka, work) as push:
            until(lambda: "Origin" in push.snapshot(name).trouble, within=20, what="said so")
            agreed["WebHook-Allowed-Origin"] = "*"
            endpoint.has_got(7)
            all_committed(kafka, name)
        methods = [request.method for request in endpoint.requests]
        assert methods == ["OPTIONS", "OPTIONS"] + ["POST"] * 5
        assert endpoint.requests[0].headers["webhook-request-origin"] == "dovecote"


def test_topics_of_a_pattern_are_read_and_no_others(stack: Servers, topic: MakeTopic) -> None:
    one, two, other, kafka = topic(), topic(), topic(), stack.kafka.bootstrap
    for name in (one, two, other):
        produce(kafka, event(name, name, 0))
    with Endpoint() as endpoint:
        later = f"{one}-later"
        work = subscribed(one, endpoint.url, pattern=f"{one}|{two}|{later}")
        often = {"bootstrap.servers": kafka, "topic.metadata.refresh.interval.ms": "300"}
        with pushing(kafka, work, brokers={"default": often}):
            endpoint.has_got(2)
            all_committed(kafka, one, id_=one)
            all_committed(kafka, two, id_=one)
            admin = AdminClient({"bootstrap.servers": kafka})
            admin.create_topics([NewTopic(later, 1)])[later].result(patient(20))
            produce(kafka, event(later, later, 0))
            endpoint.has_got(3)
        admin.delete_topics([later])[later].result(patient(20))
        assert set(first_attempts(endpoint)) == {one, two, later}


def test_what_comes_later_begins_at_its_beginning_and_what_expired_is_counted(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    later = f"{name}-later"
    produce(kafka, event(name, "old", 0))
    often = {"bootstrap.servers": kafka, "topic.metadata.refresh.interval.ms": "300"}
    with Endpoint() as endpoint:
        work = subscribed(name, endpoint.url, pattern=f"{name}.*", start="latest")
        with pushing(kafka, work, brokers={"default": often}):
            all_committed(kafka, name)
            make_topic(kafka, later)
            produce(kafka, *(event(later, "k", n) for n in range(3)))
            endpoint.has_got(3)
            all_committed(kafka, later, id_=name)
        produce(kafka, *(event(later, "k", n) for n in range(3, 9)))
        admin = AdminClient({"bootstrap.servers": kafka})
        place = TopicPartition(later, 0, 7)
        admin.delete_records([place])[place].result(patient(20))
        with pushing(kafka, work, brokers={"default": often}) as push:
            endpoint.has_got(5)
            assert push.snapshot(name).expired == 4
        assert first_attempts(endpoint) == {"k": [0, 1, 2, 7, 8]}
    delete_topic(kafka, later)


def test_a_topic_that_is_not_there_is_said_until_it_is(stack: Servers) -> None:
    name, kafka = f"missing-{uuid4().hex[:8]}", stack.kafka.bootstrap
    with Endpoint() as endpoint, pushing(kafka, subscribed(name, endpoint.url)) as push:
        why = f"topic {name!r} cannot be read: "
        until(lambda: why in push.snapshot(name).trouble, within=20, what="said so")
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_topics([NewTopic(name, 1)])[name].result(patient(20))
        until(lambda: not push.snapshot(name).trouble, within=20, what="no trouble")
        produce(kafka, event(name, "k", 0))
        endpoint.has_got(1)


def test_an_open_circuit_and_a_refused_address_are_said(stack: Servers, topic: MakeTopic) -> None:
    broken, refused, kafka = topic(), topic(), stack.kafka.bootstrap
    for name in (broken, refused):
        produce(kafka, *(event(name, f"k{k}", 0) for k in range(20)))
    with Endpoint(lambda _: Reply(503)) as endpoint:
        works = subscribed(broken, endpoint.url), subscribed(refused, "http://10.1.2.3/")
        with pushing(kafka, *works) as push:
            for name, why in (broken, "503 Service Unavailable"), (refused, "10.1.2.3 is refused"):
                until(lambda: why in push.snapshot(name).trouble, within=20, what=why)  # noqa: B023  # called within its turn
            endpoint.answer = lambda _: Reply()
            until(lambda: push.snapshot(broken).delivered == 20, within=20, what="deliveries")
            until(lambda: not push.snapshot(broken).trouble, within=20, what="no trouble")


@pytest.mark.parametrize("status", [401, 404])
def test_what_an_endpoint_answers_for_a_while_costs_no_record_and_is_said(
    stack: Servers, topic: MakeTopic, status: int
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, "k", n) for n in range(3)))
    # A lone key has the failures of one record alone: they must not use up its attempts.
    retry = {"type": "backoff", "base": "20ms", "ceiling": "50ms", "max_attempts": 9}
    with Endpoint(lambda _: Reply(status)) as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, retry=retry)) as push:
            endpoint.has_got(10)
            until(lambda: push.snapshot(name).circuit == "open", within=10, what="open")
            until(
                lambda: f"the endpoint answered {status}" in push.snapshot(name).trouble,
                within=10,
                what="the answer is said",
            )
            until(
                lambda: push.snapshot(name).last_minute == {str(status): len(push.book.attempts)},
                within=10,
                what="each attempt is counted",
            )
            endpoint.answer = lambda _: Reply()
            all_committed(kafka, name)
            assert push.snapshot(name).dead == 0
            until(lambda: not push.snapshot(name).trouble, within=10, what="no trouble")
        ids = list(dict.fromkeys(r.event_id for r in endpoint.requests))
        assert ids == ["k-0", "k-1", "k-2"]


def test_an_endpoint_that_refuses_every_record_gets_few_of_them(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, f"k{k}", 0) for k in range(400)))
    with Endpoint(lambda _: Reply(422)) as endpoint:
        limits = {"max_in_flight": 4}
        with pushing(kafka, subscribed(name, endpoint.url, limits=limits)) as push:
            until(lambda: push.snapshot(name).circuit != "closed", within=20, what="open")
            until(lambda: "422" in push.snapshot(name).trouble, within=10, what="its reason")
            assert push.snapshot(name).dead < 40
            endpoint.answer = lambda _: Reply()
            all_committed(kafka, name)
            assert push.snapshot(name).dead < 40
            told = "became dead letters in the last minute"
            until(lambda: told in push.snapshot(name).trouble, within=10, what=told)


def test_429_burns_no_attempt_and_the_rate_that_is_taken_is_found(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    produce(kafka, *(event(name, f"k{k}", n) for n in range(4) for k in range(50)))
    taken: list[float] = []

    def answer(request: Request) -> Reply:
        while taken and taken[0] <= request.at - 1:
            del taken[0]
        if len(taken) >= 20:
            return Reply(429, {"Retry-After": "1"})
        taken.append(request.at)
        return Reply()

    retry = {"type": "backoff", "max_attempts": 1}
    with Endpoint(answer) as endpoint:
        with pushing(kafka, subscribed(name, endpoint.url, retry=retry)) as push:
            until(lambda: push.snapshot(name).delivered == 200, within=40, what="deliveries")
            all_committed(kafka, name)
            found = push.snapshot(name)
            assert (found.dead, found.failed, found.circuit) == (0, 0, "closed")
            assert {a.number for a in push.book.attempts} == {1}
            assert {a.outcome for a in push.book.attempts} == {"delivered", "limited"}
            pace = push.engine.metrics.registry.get_sample_value(
                "dovecote_push_pace", {"subscription": name}
            )
            assert pace is not None
            assert pace > 0
        assert len(endpoint.requests) < 1.2 * 200
        assert all(numbers == sorted(numbers) for numbers in first_attempts(endpoint).values())


def test_two_engines_share_a_subscription_and_what_changes_begins_anew(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(4), stack.kafka.bootstrap
    with Endpoint() as endpoint, Endpoint() as other:
        work = subscribed(name, endpoint.url)
        with pushing(kafka, work) as one:
            produce(kafka, *(event(name, f"k{k}", n) for n in range(10) for k in range(20)))
            endpoint.has_got(50)
            with pushing(kafka, work) as two:
                endpoint.has_got(200)
                produce(
                    kafka, *(event(name, f"k{k}", n) for n in range(10, 20) for k in range(20))
                )
                endpoint.has_got(400)
                for partition in range(4):
                    all_committed(kafka, name, partition)
                delivered = one.snapshot(name).delivered + two.snapshot(name).delivered
                # Records that are given up are drained and committed, so nothing comes twice.
                assert delivered == 400
            one.engine.reconcile([subscribed(name, other.url, version=2)])
            produce(kafka, event(name, "k0", 20))
            other.has_got(1)
        assert first_attempts(endpoint) == {f"k{k}": list(range(20)) for k in range(20)}
        assert len(endpoint.requests) == 400
