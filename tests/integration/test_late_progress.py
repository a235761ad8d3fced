"""At least once, nothing fences a paused relay: its progress comes late, and does not count."""

import threading
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from relay.errors import LeaseLost
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.properties import producer_properties
from relay.kafka.publisher import IdempotentPublisher
from relay.postgres.claims import Claim, Mark, Term
from relay.postgres.connect import connect
from relay.rules.places.progress import Cursor, Origin, Progress, at
from relay.rules.places.snapshot import Snapshot
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relayed import running
from tests.support.relaying import Relays, commit, committed, event, ids
from tests.support.shards import wanted
from tests.support.waiting import consume, patient, until

BATCH, LATER = 50, 1_000


class Crashed(Exception):
    """The error that kills a relay."""


class Held:
    """Holds the first progress after a batch back until it is released; the others pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_come, self.let_go = threading.Event(), threading.Event()
        produce = IdempotentPublisher._produce_progress

        def produced(publisher: IdempotentPublisher, progress: Progress) -> None:
            if publisher._rows and not self.has_come.is_set():
                self.has_come.set()
                assert self.let_go.wait(patient(120))
            produce(publisher, progress)

        monkeypatch.setattr(IdempotentPublisher, "_produce_progress", produced)


def test_progress_that_a_paused_relay_writes_late_repeats_no_more_than_its_batch(
    fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, held = topic(1), Held(monkeypatch)
    with running([wanted(fleet, 1, mode="at_least_once", batch_rows=BATCH)]):
        commit(fleet.dsn, *[event(name, number) for number in range(BATCH)])
        assert held.has_come.wait(patient(30))
        with psycopg.connect(fleet.dsn) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE '%(lease)'"
            )
        commit(fleet.dsn, *[event(name, BATCH + number) for number in range(LATER)])
        with running([wanted(fleet, 1, mode="at_least_once", batch_rows=BATCH)]):
            until(
                lambda: len(set(ids(consume(fleet.bootstrap, name)))) == BATCH + LATER,
                within=60,
                what="all events",
            )
        held.let_go.set()
        commit(fleet.dsn, event(name, BATCH + LATER))
        until(
            lambda: len(set(ids(consume(fleet.bootstrap, name)))) == BATCH + LATER + 1,
            within=60,
            what="an event behind the late progress",
        )
    found = ids(consume(fleet.bootstrap, name))
    assert set(found) == set(committed(fleet.dsn, name))
    assert len(found) - len(set(found)) <= BATCH


def test_a_nonce_that_an_earlier_relay_writes_late_does_not_look_like_a_restore(
    fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, settings = topic(1), wanted(fleet, 1, mode="at_least_once", batch_rows=BATCH)
    with running([settings]):
        commit(fleet.dsn, event(name, 0))
        until(lambda: len(consume(fleet.bootstrap, name)) == 1, within=30, what="an event")
    place = ProgressTopic(settings.progress_topic, settings.kafka, timeout=patient(10))
    stood = place.peek(settings.name)
    assert stood is not None
    with connect(fleet.dsn, purpose="test") as conn:
        claim = Claim(conn, "outbox", fleet.name)
        on_its_way, _ = claim.renew(place.cluster(), stood.nonce, stood.nonce, Mark.now(stood))
    # The next relay gets as far as its own nonce, and no further …
    begin = Claim.take

    def taken(*given: Any, **more: Any) -> Term:
        begin(*given, **more)
        raise Crashed

    monkeypatch.setattr(Claim, "take", taken)
    with pytest.raises(Crashed), running([settings]):
        pass
    monkeypatch.undo()
    # … before the progress arrives that the relay before it had sent.
    late = replace(stood, nonce=on_its_way)
    producer = Producer({"bootstrap.servers": fleet.bootstrap})
    producer.produce(settings.progress_topic, late.encode(), late.key, partition=0)
    producer.flush(patient(30))
    with running([settings]):
        commit(fleet.dsn, event(name, 1))
        until(lambda: len(consume(fleet.bootstrap, name)) == 2, within=30, what="both events")


def test_without_the_role_a_batch_is_not_followed_by_its_progress(
    stack: Servers, topic: MakeTopic
) -> None:
    kafka = {"bootstrap.servers": stack.kafka.bootstrap}
    progress_topic = topic(1, cleanup_policy="compact")

    def not_ours() -> None:
        raise LeaseLost

    publisher = IdempotentPublisher(
        producer_properties(
            kafka, mode="at_least_once", transactional_id="", transaction_timeout=20
        ),
        progress_topic,
        timeout=patient(20),
        grace=1,
        stopped=lambda: False,
        slow=lambda _: None,
        require_role=not_ours,
    )
    with closing(publisher):
        publisher.open()
        origin = Origin("7", 1, 2, 1, "0/0", Snapshot(1, 1))
        with pytest.raises(LeaseLost):
            publisher.publish([], at("shop", origin, Cursor(Snapshot(5, 5))))
    assert ProgressTopic(progress_topic, kafka, timeout=patient(10)).peek("shop") is None
