"""A consumer goes on after its broker was away, and ends although it is silent."""

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dovecote.devstack import Stack
from outbox import Event
from outbox.errors import DovecoteError
from tests.support.compacting import compacted
from tests.support.consuming import committed, consuming, end_of, event, produce
from tests.support.fix_stack import MakeTopic, Servers, new_topics
from tests.support.waiting import consume, patient, until


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


def test_while_kafka_is_away_it_says_so_and_then_goes_on(own_stack: Stack) -> None:
    kafka = own_stack.kafka.bootstrap
    release = threading.Event()

    def handle(given: Event) -> None:
        if given.key == "waits":
            release.wait(patient(30))

    with new_topics(own_stack) as make:
        name = make()
        produce(kafka, *(event(name, f"k{n}", n) for n in range(5)), event(name, "waits", 0))
        with consuming(kafka, name, handle) as run:
            until(lambda: committed(kafka, name)[0] == 5, within=20, what="five committed")
            own_stack.kafka.kill()
            until(
                lambda: run.consumer.health.ready().reason == "no Kafka broker answers",
                within=20,
                what="that Kafka is away",
            )
            release.set()
            until(lambda: run.count("records_total") == 6, within=10, what="handled meanwhile")
            own_stack.kafka.start()
            produce(kafka, event(name, "k0", 5))
            until(lambda: committed(kafka, name)[0] == 7, within=40, what="all committed")
            until(lambda: run.consumer.health.ready().ok, within=20, what="that all is well")
            assert sorted(run.ids) == sorted([*(f"k{n}-{n}" for n in range(5)), "waits-0", "k0-5"])


def test_what_compaction_removed_is_stepped_over(tmp_path: Path) -> None:
    with compacted(tmp_path) as (kafka, name):
        with consuming(kafka, name, policy="every") as run:
            until(
                lambda: committed(kafka, name)[0] == end_of(kafka, name),
                within=20,
                what="the end",
            )
            left = run.ids
        offsets = [message.offset() for message in consume(kafka, name)]
        # Compaction goes on meanwhile, but nothing that is there now was left out.
        assert len(set(left)) == len(left) >= len(offsets)
        assert len(left) < end_of(kafka, name)


@pytest.mark.parametrize("awaited", [False, True])
def test_when_it_ends_handlers_at_work_may_finish_and_what_they_did_is_committed(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name = topic()
    produce(kafka, *(event(name, "k", n) for n in range(50)))
    begun = threading.Event()
    ended: list[str] = []

    def handle(given: Event) -> None:
        begun.set()
        threading.Event().wait(patient(0.1))  # few of them, while it is told to end
        ended.append(given.id)

    with consuming(kafka, name, handle, awaited=awaited):
        assert begun.wait(patient(20))
    assert 1 <= len(ended) < 10
    assert ended == [f"k-{n}" for n in range(len(ended))]
    assert committed(kafka, name)[0] == len(ended)


def test_a_consumer_ends_although_its_broker_is_silent(own_stack: Stack) -> None:
    kafka = own_stack.kafka.bootstrap
    with new_topics(own_stack) as make:
        with consuming(kafka, name := make(), commit_every="1h") as running:
            produce(kafka, event(name, "a", 1))
            running.has_handled(1, within=60)
            own_stack.kafka.pause()
            # The block ends with the consumer, which has half a minute.
        own_stack.kafka.resume()


def with_one_name(kafka: str, name: str, **given: Any) -> None:
    """Run two members of one `instance`; raise the reason of the one that ends."""
    with consuming(kafka, name, instance="one", **given) as first:
        until(lambda: first.consumer.health.ready().ok, within=20, what="the first a member")
        with consuming(kafka, name, instance="one", **given) as second:
            until(lambda: first.failure or second.failure, within=20, what="one that ended")
            living, ended = (first, second) if second.failure else (second, first)
            assert ended.consumer.health.ready().reason == "stopped"
            produce(kafka, event(name, "k", 0))
            living.has_handled(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_of_two_processes_with_one_instance_name_one_ends_with_a_reason(
    kafka: str, topic: MakeTopic, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dedup.consumer._SESSION_SECONDS", 0)
    with pytest.raises(DovecoteError, match="another process has the same `instance`"):
        with_one_name(kafka, topic(), protocol=protocol)


def test_a_static_member_waits_until_the_group_has_let_go_of_the_one_before(
    kafka: str, topic: MakeTopic
) -> None:
    """A process that was killed is kept for a session, as one that lives is here."""
    name = topic()
    with ExitStack() as before:
        first = before.enter_context(consuming(kafka, name, instance="one", protocol="consumer"))
        until(lambda: first.consumer.health.ready().ok, within=20, what="the first a member")
        with consuming(kafka, name, instance="one", protocol="consumer") as second:
            health = second.consumer.health
            until(
                lambda: "still has a member" in health.ready().reason,
                within=20,
                what="that it waits",
            )
            assert not health.ready().ok
            before.close()
            produce(kafka, event(name, "k", 0))
            second.has_handled(1)
            until(lambda: health.ready().ok, within=20, what="the second a member")
