"""Each part works with the rights that docs/security.md lists, and names a missing one."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.inbox import schema as inbox_schema
from dedup.kafka.dead_topic import DeadTopic
from dedup.kafka.letters import Letters
from dedup.kafka.polling import Polling
from dedup.retries import copies
from dedup.retries.aside import Outage
from dedup.retries.letter import Which
from dedup.rules.record import Record
from dedup.rules.unread import Place
from dedup.unread.notes import TOPIC as SKIPS
from dedup.unread.probing import noted, skip, unread
from dovecote.push.api.positions import Positions
from outbox import DovecoteError, Event
from outbox import schema as outbox_schema
from outbox.producer.producer import Producer
from tests.support.commands import doctor, status
from tests.support.consuming import Consuming, consuming, event, produce
from tests.support.delivering import Endpoint, Pushing, Reply, pushing, subscribed
from tests.support.fix_stack import MakeTopic, new_database, new_topics
from tests.support.guarded import Guarded, Right, each_without, guarded, listed
from tests.support.relaying import Relays, commit, installed, published, relays
from tests.support.relaying import event as counted
from tests.support.unreadable import LIMITS, produce_bomb
from tests.support.waiting import consume, patient, until


@pytest.fixture(scope="module")
def kafka() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@pytest.fixture
def topic(kafka: Guarded) -> Iterator[MakeTopic]:
    with new_topics(kafka.stack) as make:
        yield make


def fails(_: Event) -> None:
    msg = "this one always fails"
    raise ValueError(msg)


class Failing(NamedTuple):
    """A consumer whose every record fails twice, and the right that it lacks."""

    running: Consuming
    dead: str
    missing: Right | None


def failing(
    kafka: Guarded,
    topic: MakeTopic,
    running: ExitStack,
    without: int | None = None,
    *,
    inbox: str = "",
) -> Failing:
    """Run a consumer with the rights of the page, but for the one with this number."""
    name, retry, dead = topic(1), topic(1), topic(1)
    rights = [
        *listed("consumer", topic=name, group=name, retry_topic=retry, dead_letter_topic=dead)
    ]
    missing = None if without is None else rights.pop(without)
    produce(kafka.stack.kafka.bootstrap, event(name, "k", 1))
    twice = {"max_attempts": 2, "base": "100ms"}
    retries = {**twice, "tiers": [{"topic": retry}], "dead_letter_topic": dead}
    client = kafka.client(rights)
    more: dict[str, Any] = {"inbox": {"dsn": inbox}} if inbox else {}
    # The client says once that it may not read a topic, and that may be lost on the way.
    more["stall_after"] = "5s"
    made = consuming(kafka.address, name, fails, kafka=client, retries=retries, **more)
    return Failing(running.enter_context(made), dead, missing)


@pytest.mark.parametrize("has_inbox", [False, True], ids=["plain", "inbox"])
def test_a_consumer_needs_its_rights_and_names_a_missing_one(
    kafka: Guarded,
    topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    has_inbox: bool,  # noqa: FBT001  # a parameter of pytest
) -> None:
    bootstrap = kafka.stack.kafka.bootstrap
    names = {"topic": "", "group": "", "retry_topic": "", "dead_letter_topic": ""}
    with ExitStack() as running:
        inbox = ""
        if has_inbox:
            dsn = running.enter_context(new_database(kafka.stack))
            with psycopg.connect(dsn) as conn:
                inbox_schema.install(conn)
            given = conninfo_to_dict(dsn)
            monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
            inbox = make_conninfo("", **given)
        whole = failing(kafka, topic, running, inbox=inbox)
        lacking = [
            failing(kafka, topic, running, without, inbox=inbox)
            for without in range(len(listed("consumer", **names)))
        ]
        until(lambda: len(consume(bootstrap, whole.dead)) == 1, within=30, what="a dead letter")
        for consumer, _, missing in lacking:
            assert missing is not None
            is_said(missing, lambda: caplog.text)
            if missing.operation == "Read":
                report = consumer.consumer.health.ready
                is_said(missing, lambda report=report: report().reason)  # type: ignore[misc]  # mypy cannot infer it


def is_said(missing: Right, text: Callable[[], str]) -> None:
    until(lambda: f"grant this user {missing.said}, see" in text(), within=30, what=missing.said)


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("is_heard", [True, False])
def test_a_topic_is_read_again_once_the_right_is_there(
    kafka: Guarded,
    topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    start: str,
    *,
    is_heard: bool,
) -> None:
    """The right to write lets a user see the topic: only its records are refused."""
    if not is_heard:  # what the client says, once
        monkeypatch.setattr(Polling, "_noticed", lambda *_: None)
    name = topic(1)
    client = kafka.client([Right("Write", "topic", name), Right("Read", "group", name)])
    user = client["ssl.key.location"].rpartition("/")[2].removesuffix(".key")
    with consuming(kafka.address, name, kafka=client, start=start, stall_after="3s") as running:
        report = running.consumer.health.ready
        is_said(Right("Read", "topic", name), lambda: report().reason)
        kafka.grant(user, [Right("Read", "topic", name)])
        until(lambda: report().reason == "progressing", within=20, what="nothing is said any more")
        produce(kafka.stack.kafka.bootstrap, event(name, "k", 1))
        running.has_handled(1, within=30)


def bury(kafka: Guarded, source: str, dead: str) -> None:
    record = Record(source, 0, 0, 1_790_000_000_000, b"k", b"{}", [("ce_id", b"e1")])
    with Letters({"bootstrap.servers": kafka.stack.kafka.bootstrap}) as letters:
        letters.send(dead, copies.dead(record, record.identity, now=1_790_000_000_000, error="no"))


def test_letters_are_requeued_with_the_rights_for_it_and_a_missing_one_is_named(
    kafka: Guarded, topic: MakeTopic
) -> None:
    name, dead = topic(1), topic(1)
    bury(kafka, name, dead)
    rights = listed("dovecote consume dead", topic=name, dead_letter_topic=dead)
    for missing, others in each_without(rights).items():
        with pytest.raises(DovecoteError) as refused:
            DeadTopic(kafka.client(others), dead).resolve(Which(), "requeued", lambda _: name)
        assert f"grant this user {missing.said}, see" in str(refused.value)
    assert consume(kafka.stack.kafka.bootstrap, name) == []
    done = DeadTopic(kafka.client(rights), dead).resolve(Which(), "requeued", lambda _: name)
    assert len(done.done) == 1
    assert len(consume(kafka.stack.kafka.bootstrap, name)) == 1


def test_a_direct_producer_needs_one_right_and_names_it_while_events_take_the_other_way(
    kafka: Guarded, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    event_: Event[object] = Event(topic=name, key=None, type="Tested", value={})
    rights = listed("direct producer", topic=name)
    with new_database(kafka.stack) as dsn:
        with psycopg.connect(dsn) as conn:
            outbox_schema.install(conn)
        with Producer(dsn, kafka.client(rights)) as producer:
            assert producer.send(event_) == "kafka"
        (missing,) = each_without(rights)
        # A user that may write nowhere gets no producer's id, either.
        elsewhere = [Right("Describe", "topic", name), Right("Write", "topic", topic(1))]
        for others in ([], elsewhere):
            with Producer(dsn, kafka.client(others)) as producer:
                assert producer.send(event_) == "outbox"
            assert missing.said in caplog.text
            caplog.clear()


def push_rights(id_: str, topic: str) -> dict[Right, bool]:
    return listed("push", id=id_, topic=topic)


def test_push_needs_its_rights_and_names_a_missing_one(
    kafka: Guarded, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = kafka.stack.kafka.bootstrap
    names = [topic(1) for _ in push_rights("", "")]
    whole = topic(1)
    with Endpoint(lambda _: Reply(422)) as endpoint, ExitStack() as running:

        def push(id_: str, rights: list[Right]) -> Pushing:
            produce(bootstrap, event(id_, "k", 1))
            work = subscribed(id_, endpoint.url)
            client = {"default": kafka.client(rights)}
            return running.enter_context(pushing(kafka.address, work, brokers=client))

        push(whole, [*push_rights(whole, whole)])
        for number, name in enumerate(names):
            others = [*push_rights(name, name)]
            missing = others.pop(number)
            push(name, others)
            is_said(missing, lambda: caplog.text)
        dead = f"dovecote.push.{whole}.dead"
        until(lambda: len(consume(bootstrap, dead)) == 1, within=30, what="a dead letter")


def test_a_position_is_set_with_the_rights_of_push_and_a_missing_one_is_named(
    kafka: Guarded, topic: MakeTopic
) -> None:
    name = topic(1)
    subscription = subscribed(name, "http://127.0.0.1:1/").subscription
    group = Right("Read", "group", subscription.group_id)
    rights = [right for right in push_rights(name, name) if right != group]
    with pytest.raises(DovecoteError, match="GROUP_AUTHORIZATION") as refused:
        Positions(kafka.client(rights)).reset(subscription, "earliest")
    assert group.said in str(refused.value)
    done = Positions(kafka.client([*rights, group])).reset(subscription, "earliest")
    assert done == {name: {"0": 0}}


def test_push_requeues_with_the_rights_for_it_and_a_missing_one_is_named(
    kafka: Guarded, topic: MakeTopic
) -> None:
    id_ = f"s-{uuid4().hex[:8]}"
    dead, requeued = f"dovecote.push.{id_}.dead", f"dovecote.push.{id_}.requeued"
    admin = kafka.admin
    made = admin.create_topics([NewTopic(each, 1, 1) for each in (dead, requeued)])
    for each in made.values():
        each.result(patient(30))
    bury(kafka, topic(1), dead)
    rights = listed("push's requeueing", id=id_)
    for missing, others in each_without(rights).items():
        with pytest.raises(DovecoteError) as refused:
            DeadTopic(kafka.client(others), dead).resolve(Which(), "requeued", lambda _: requeued)
        assert f"grant this user {missing.said}, see" in str(refused.value)
    done = DeadTopic(kafka.client(rights), dead).resolve(Which(), "requeued", lambda _: requeued)
    assert len(done.done) == 1


def test_an_offset_is_skipped_with_the_rights_for_it_and_a_missing_one_is_named(
    kafka: Guarded, topic: MakeTopic
) -> None:
    name = topic(1)
    produce_bomb(kafka.stack.kafka.bootstrap, name)
    place, rights = Place(name, 0, 0), listed("a skip command", topic=name)

    def skipped(given: Iterable[Right]) -> None:
        skip({**kafka.client(given), **LIMITS}, "shop", place, by="ann", why="a test")

    # The topic of notes is not there yet, so all of these are needed.
    for missing, others in each_without(rights).items():
        if missing.operation == "Write":
            kafka.create(SKIPS)
        with pytest.raises(DovecoteError) as refused:
            skipped(others)
        assert f"grant this user {missing.said}, see" in str(refused.value)
    skipped(rights)
    # Each part that reads needs one right more, while something cannot be read.
    reads, notes = Right("Read", "topic", name), Right("Read", "topic", SKIPS)
    for given in ([reads], [reads, Right("Write", "topic", SKIPS)]):
        with pytest.raises(DovecoteError) as refused:
            noted({**kafka.client(given), **LIMITS}, "shop", {place: None})
        assert f"grant this user {notes.said}, see" in str(refused.value)
    found = noted({**kafka.client([reads, notes]), **LIMITS}, "shop", {place: None})
    assert found[place].by == "ann"


def test_a_producer_on_one_topic_reaches_no_other(kafka: Guarded, topic: MakeTopic) -> None:
    own, other = topic(1), topic(1)
    record = Record(own, 0, 0, 1, b"k", b"{}", [("ce_id", b"e1")])
    forged = copies.dead(record, record.identity, now=1, error="forged")
    with Letters(kafka.client([Right("Write", "topic", own)])) as letters:
        letters.send(own, forged)
        for name in (other, "dovecote.progress.shop", "dovecote.markers.job"):
            with pytest.raises(Outage, match="grant this user `Write` on topic"):
                letters.send(name, forged)


def test_a_user_of_a_part_reaches_nothing_beyond_its_rows(
    kafka: Guarded, topic: MakeTopic
) -> None:
    name, retry, dead, other = (topic(1) for _ in range(4))
    produce(kafka.stack.kafka.bootstrap, event(name, "k", 1))
    relay = kafka.client(listed("relay", name="shop", topic=name))
    with pytest.raises(DovecoteError, match="grant this user `Read` on topic"):
        unread(relay, Place(name, 0, 0))
    consumer = kafka.client(
        listed("consumer", topic=name, group=name, retry_topic=retry, dead_letter_topic=dead)
    )
    record = Record(name, 0, 0, 1, b"k", b"{}", [("ce_id", b"e1")])
    with Letters(consumer) as letters, pytest.raises(Outage, match="grant this user `Write`"):
        letters.send(other, copies.dead(record, record.identity, now=1, error="forged"))
    wanted = ConsumerGroupTopicPartitions(other, [TopicPartition(name, 0, 1)])
    foreign = AdminClient({**consumer})
    with pytest.raises(KafkaException) as refused:
        foreign.alter_consumer_group_offsets([wanted])[other].result(patient(30))
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_certificate_that_changes_while_all_runs_stops_nobody(
    kafka: Guarded, topic: MakeTopic
) -> None:
    """The broker takes a new key and certificate; clients connect anew, and lose nothing."""
    name, bootstrap = topic(1), kafka.stack.kafka.bootstrap
    client = kafka.client([Right("Read", "topic", name), Right("Read", "group", name)])
    with consuming(kafka.address, name, kafka={**client, "connections.max.idle.ms": "1000"}) as it:
        produce(bootstrap, event(name, "k", 1))
        it.has_handled(1)
        before = kafka.certificate()
        kafka.renew()
        until(lambda: kafka.certificate() != before, within=30, what="another certificate")
        produce(bootstrap, event(name, "k", 2))
        it.has_handled(2, within=30)
        until(lambda: it.consumer.health.ready().ok, within=30, what="ready")
    # And so does a client that begins now.
    with consuming(kafka.address, name, kafka=client) as it:
        produce(bootstrap, event(name, "k", 3))
        it.has_handled(1, within=30)


@pytest.fixture
def of_log(kafka: Guarded, tmp_path: Path) -> Iterator[Relays]:
    """Relays that read the log, and are given a user's properties for Kafka."""
    with (
        new_database(kafka.stack) as dsn,
        relays(tmp_path, installed(dsn, "wal"), kafka.stack.kafka.bootstrap) as fleet,
    ):
        yield fleet


def relay_rights(fleet: Relays, topic: str) -> tuple[list[Right], list[Right]]:
    """Return all rights of a relay, and those without which it does not start, in an order."""
    rights = listed("relay", name=fleet.name, topic=topic)
    needed = [right for right, is_needed in rights.items() if is_needed and right.name != topic]
    # Once the topic of progress is there, nobody needs to create it.
    return [*rights], sorted(needed, key=lambda right: right.operation != "Create")


def test_a_relay_of_the_log_and_its_commands_need_the_same_rights_and_name_a_missing_one(
    kafka: Guarded, topic: MakeTopic, of_log: Relays
) -> None:
    name, other = topic(1), topic(1)
    rights, needed = relay_rights(of_log, name)
    for missing in needed:
        relay = of_log.start(kafka=kafka.client(right for right in rights if right != missing))
        assert relay.wait(within=30) == 1
        assert f"grant this user {missing.said}" in relay.log
    client = kafka.client(rights)
    relay = of_log.active(kafka=client)
    # A topic that it may not write to holds up nobody.
    commit(of_log.dsn, counted(other, 1), counted(name, 1))
    published(of_log, name, 1)
    relay.until_logged(
        f"for topic '{other}', key 'key': Broker: Topic authorization failed (grant"
    )
    for command in (doctor, status):
        said = command(of_log, kafka=client)
        assert (said.returncode, "grant this user" in said.stdout + said.stderr) == (0, False), (
            said
        )
    assert relay.terminate() == 0


@pytest.mark.parametrize("command", [doctor, status], ids=["doctor", "status"])
def test_commands_of_the_relay_name_a_right_that_is_missing(
    kafka: Guarded, topic: MakeTopic, of_log: Relays, command: Callable[..., Any]
) -> None:
    rights, _ = relay_rights(of_log, topic(1))
    of_log.active(kafka=kafka.client(rights)).terminate()
    read = Right("Read", "topic", f"dovecote.progress.{of_log.name}")
    for others in ([], [right for right in rights if right != read]):
        said = command(of_log, kafka=kafka.client(others))
        assert f"grant this user {read.said}" in said.stdout + said.stderr, said
