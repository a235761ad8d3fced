"""Each part says in one word how it is, and is not green while its servers are away."""

import json
import re
from collections.abc import Callable, Iterator
from os import urandom
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from dedup.inbox import schema as inbox_schema
from dovecote.devstack import Stack
from dovecote.process.states import State
from dovecote.push.process import engine, running
from outbox import Event
from tests.support.commands import status
from tests.support.consuming import consuming, event, open_transaction, produce
from tests.support.delivering import Endpoint, Reply, pushing, subscribed
from tests.support.fix_stack import MakeTopic, Servers, new_database, new_topics
from tests.support.idle_push import TOKEN, Client, installed, push_settings
from tests.support.relaying import RelayProcess, Relays, commit, relays
from tests.support.relaying import event as written
from tests.support.relaying import installed as with_outbox
from tests.support.waiting import until

LATE = 90
"""Seconds within which a state follows what happens: it is asked for every 20."""


@pytest.fixture
def fleet(stack: Servers, database: str, tmp_path: Path) -> Iterator[Relays]:
    with relays(tmp_path, database, stack.kafka.bootstrap) as started:
        yield started


def said(relay: RelayProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(relay.get("/readyz").body)
    return found


def told(fleet: Relays) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(status(fleet, "--json").stdout)
    return found


def comes(state: State, found: Callable[[], object], within: float = LATE) -> None:
    seen: list[object] = []

    def is_so() -> bool:
        seen[:] = [found()]
        return seen == [state]

    try:
        until(is_so, within=within, what=f"the state {state}")
    except AssertionError as error:
        msg = f"{error}, but {seen}"
        raise AssertionError(msg) from None


def is_said(reason: str, found: Callable[[], str]) -> None:
    until(lambda: reason in found(), within=LATE, what=f"the reason {reason}")


def test_relays_without_work_are_not_green_while_kafka_is_away(
    own_stack: Stack, tmp_path: Path
) -> None:
    with (
        new_database(own_stack) as dsn,
        relays(tmp_path, with_outbox(dsn), own_stack.kafka.bootstrap) as fleet,
    ):
        active = fleet.active()
        standby = fleet.start()
        standby.until_logged("standing by")
        comes(State.IDLE, lambda: said(active)["state"])
        comes(State.STANDBY, lambda: said(standby)["state"])
        own_stack.kafka.kill()
        comes(State.FAILING, lambda: said(active)["state"])
        comes(State.FAILING, lambda: said(standby)["state"])
        for each in (active, standby):
            is_said("Kafka", lambda each=each: said(each)["reason"])  # type: ignore[misc]  # bound early
            until(lambda each=each: fails(each), within=LATE, what="it refuses, and is counted")  # type: ignore[misc]  # bound early
        own_stack.kafka.start()
        comes(State.IDLE, lambda: said(active)["state"])
        comes(State.STANDBY, lambda: said(standby)["state"])


def fails(relay: RelayProcess) -> bool:
    """Whether it answers 503, and its metrics say the same."""
    status, shown = relay.get("/readyz").status, relay.get("/metrics").body
    failing = re.search(r'dovecote_relay_state\{outbox="[^"]+",state="failing"\} 1.0', shown)
    idle = re.search(r'dovecote_relay_state\{outbox="[^"]+",state="idle"\} 0.0', shown)
    return status == 503 and failing is not None and idle is not None


def test_a_relay_that_parks_is_not_green_and_its_status_says_the_same(
    fleet: Relays, topic: MakeTopic
) -> None:
    there = topic(1, **{"max.message.bytes": "2000"})
    with_outbox(fleet.dsn)
    commit(fleet.dsn, written(there, 0))
    relay = fleet.active()
    comes(State.WORKING, lambda: said(relay)["state"])
    comes(State.IDLE, lambda: told(fleet)["state"])
    # Larger than its topic takes.
    commit(fleet.dsn, Event(topic=there, type="Grown", source="/t", value=urandom(20_000)))
    comes(State.FAILING, lambda: said(relay)["state"])
    is_said("1 event is parked", lambda: said(relay)["reason"])
    # A restart would not help.
    until(lambda: relay.get("/readyz").status == 200, within=LATE, what="it is ready")
    comes(State.BEHIND, lambda: told(fleet)["state"])
    assert told(fleet)["parked"] == 1


def test_a_member_without_a_partition_stands_by(stack: Servers, topic: MakeTopic) -> None:
    name, kafka = topic(1), stack.kafka.bootstrap
    with consuming(kafka, name) as one, consuming(kafka, name) as other:
        both = (one.consumer.health, other.consumer.health)

        def states() -> list[str]:
            return sorted(each.ready().state for each in both)

        until(lambda: states() == ["idle", "standby"], within=LATE, what="one stands by")
        produce(kafka, event(name, "k", 0))
        until(lambda: states() == ["standby", "working"], within=LATE, what="one works")


def test_a_consumer_says_that_its_inbox_is_away(
    stack: Servers, topic: MakeTopic, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, kafka = topic(1), stack.kafka.bootstrap
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
    given: dict[str, Any] = conninfo_to_dict(database)
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password", "")))
    its_name, elsewhere = str(given["dbname"]), make_conninfo(**{**given, "dbname": "postgres"})
    shut = SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(Identifier(its_name))
    opened = SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(Identifier(its_name))
    with (
        consuming(kafka, name, inbox={"dsn": make_conninfo(**given)}) as reading,
        psycopg.connect(elsewhere, autocommit=True) as conn,
    ):
        health = reading.consumer.health
        comes(State.IDLE, lambda: health.ready().state)
        conn.execute(shut)
        try:
            comes(State.FAILING, lambda: health.ready().state)
            is_said("the inbox: ", lambda: health.ready().reason)
        finally:
            conn.execute(opened)
        comes(State.IDLE, lambda: health.ready().state)


def test_a_consumer_whose_handler_fails_hangs_or_is_held_back_is_not_green(
    stack: Servers, topic: MakeTopic
) -> None:
    name, kafka = topic(1), stack.kafka.bootstrap

    def fails(_: object) -> None:
        msg = "no"
        raise ValueError(msg)

    with consuming(kafka, name, fails) as broken:
        produce(kafka, event(name, "k", 0))
        comes(State.FAILING, lambda: broken.consumer.health.ready().state)
        is_said("attempts failed", lambda: broken.consumer.health.ready().reason)
    held = topic(1)
    with (
        open_transaction(kafka, held),
        consuming(kafka, held, stall_after="2s") as waiting,
    ):
        comes(State.STALLED, lambda: waiting.consumer.health.ready().state)
        is_said("held back", lambda: waiting.consumer.health.ready().reason)
        until(lambda: waiting.consumer.health.ready().ok, within=LATE, what="it is ready")


def test_a_subscription_is_as_its_endpoint_answers(stack: Servers, topic: MakeTopic) -> None:
    name, kafka = topic(), stack.kafka.bootstrap
    answer = Reply(401)
    with (
        Endpoint(lambda _: answer) as endpoint,
        pushing(kafka, subscribed(name, endpoint.url)) as push,
    ):
        comes(State.IDLE, lambda: push.snapshot(name).state)
        produce(kafka, event(name, "k", 0))
        comes(State.FAILING, lambda: push.snapshot(name).state)
        until(
            lambda: re.match(r"401 Unauthorized, \d+ of the last \d+", push.snapshot(name).reason),
            within=LATE,
            what="the answers are counted",
        )
        assert push.snapshot(name).since is not None
        answer = Reply()
        comes(State.WORKING, lambda: push.snapshot(name).state)


def test_a_subscription_of_a_missing_topic_and_one_without_a_broker_fail(
    stack: Servers,
) -> None:
    kafka = stack.kafka.bootstrap
    with Endpoint(lambda _: Reply()) as endpoint:
        with pushing(kafka, subscribed("nobody-made-it", endpoint.url)) as push:
            comes(State.FAILING, lambda: push.snapshot("nobody-made-it").state)
            is_said("nobody-made-it", lambda: push.snapshot("nobody-made-it").reason)
        with pushing("127.0.0.1:1", subscribed("away", endpoint.url)) as push:
            comes(State.FAILING, lambda: push.snapshot("away").state)


def test_push_without_subscriptions_knows_whether_its_servers_answer(own_stack: Stack) -> None:
    with new_database(own_stack) as dsn, installed(dsn), new_topics(own_stack):
        settings = push_settings(dsn, own_stack.kafka.bootstrap)
        with running(settings, engine(settings)) as push:
            client = Client(push.at.port, TOKEN)

            def state() -> str:
                return str(client("GET", "/readyz").body["state"])

            comes(State.IDLE, state)
            is_said(
                'dovecote_push_state{state="idle"} 1.0',
                lambda: str(client("GET", "/metrics").body),
            )
            own_stack.kafka.kill()
            comes(State.FAILING, state)
            is_said("broker 'default'", lambda: str(client("GET", "/readyz").body["reason"]))
            # The API is of use.
            until(lambda: client("GET", "/readyz").status == 200, within=LATE, what="ready")
            own_stack.kafka.start()
            comes(State.IDLE, state)
            own_stack.postgres.kill()
            comes(State.FAILING, state)
            until(lambda: client("GET", "/readyz").status == 503, within=LATE, what="not ready")
            own_stack.postgres.start()
            comes(State.IDLE, state)
