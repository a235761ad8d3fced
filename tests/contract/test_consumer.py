"""The promises of a producer that falls back and of a consumer with an inbox, on every stack."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.consumer import Consumer
from dedup.inbox import schema as inbox_schema
from dedup.rules.policies.results import Result, Retry
from outbox import Event
from outbox.envelope import ERROR
from tests.support.consuming import committed, end_of, event, produce, settings
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import ids, installed, relays
from tests.support.sending import Sent, doubtful
from tests.support.waiting import consume, patient, until

pytestmark = pytest.mark.contract

KEYS = ("a", "b", "c")


@pytest.fixture
def inbox(database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with an inbox and a table of effects, without its password."""
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (nr bigserial, id text)")
    parts = conninfo_to_dict(database)
    monkeypatch.setenv("PGPASSWORD", str(parts.pop("password", "")))
    return make_conninfo(**{name: str(value) for name, value in parts.items()})


def effects(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM effects ORDER BY nr").fetchall()]


@contextmanager
def handling(stack: Servers, name: str, handle: Any, **given: Any) -> Iterator[Consumer]:
    """Run a consumer until the end of the block."""
    consumer = Consumer(settings(stack.kafka.bootstrap, name, **given), handle)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run)
        try:
            yield consumer
        finally:
            consumer.stop()
        running.result(patient(40))


class Handler:
    """
    Has effects for each event; fails for `fails` once and for `never` always, after the effect.
    """

    def __init__(self, fails: str, never: str) -> None:
        self._fails, self._never = {fails}, never
        self.calls: list[list[str]] = []

    def together(self, events: list[Event], tx: psycopg.Connection) -> list[Result | None]:
        self.calls.append([each.id for each in events])
        for each in events:
            tx.execute("INSERT INTO effects (id) VALUES (%s)", [each.id])
        return [self._answer(each.id) for each in events]

    async def awaited(
        self, events: list[Event], tx: psycopg.AsyncConnection
    ) -> list[Result | None]:
        self.calls.append([each.id for each in events])
        for each in events:
            await tx.execute("INSERT INTO effects (id) VALUES (%s)", [each.id])
        await asyncio.sleep(0)
        return [self._answer(each.id) for each in events]

    def alone(self, given: Event, tx: psycopg.Connection) -> Result | None:
        return self.together([given], tx)[0]

    def _answer(self, id_: str) -> Result | None:
        if id_ == self._never:
            return Retry("never this one")
        if id_ in self._fails:
            self._fails.clear()
            return Retry("not yet")
        return None


@pytest.mark.parametrize("way", ["alone", "together", "awaited"])
def test_effects_happen_once_and_in_order_and_poison_goes_aside(
    stack: Servers, topic: MakeTopic, inbox: str, way: str
) -> None:
    kafka, name, dead = stack.kafka.bootstrap, topic(), topic()
    events = [event(name, key, n) for n in range(8) for key in KEYS]
    produce(kafka, *events, event(name, "unreadable", 0, b"{"))
    handler = Handler(fails="a-3", never="b-5")
    given = {
        "inbox": {"dsn": inbox},
        "policy": "every",
        "handler_batch": 1 if way == "alone" else 10,
        "retries": {
            "dead_letter_topic": dead,
            "base": "20ms",
            "ceiling": "50ms",
            "max_attempts": 3,
        },
    }
    for copies in range(2):
        produce(kafka, *(events if copies else ()))
        with handling(stack, name, getattr(handler, way), **given):
            until(
                lambda: committed(kafka, name)[0] == end_of(kafka, name),
                within=30,
                what="all committed",
            )
    letters = consume(kafka, dead)
    assert {(letter.key() or b"").decode() for letter in letters} == {"unreadable", "b"}
    reasons = [dict(letter.headers() or ())[ERROR] for letter in letters]
    assert any("never this one" in str(reason) for reason in reasons)
    done = effects(inbox)
    for key in KEYS:
        wanted = [each.id for each in events if each.key == key and each.id != "b-5"]
        assert [id_ for id_ in done if id_.startswith(key)] == wanted
    assert (max(map(len, handler.calls)) > 1) == (way != "alone")


def test_what_is_in_doubt_goes_through_the_outbox_and_has_its_effects_once(
    stack: Servers, topic: MakeTopic, inbox: str, database: str, tmp_path: Path
) -> None:
    name = topic(2)
    fleet_stack = relays(tmp_path, installed(database), stack.kafka.bootstrap)
    with fleet_stack as fleet, doubtful(fleet) as producer:
        sent = Sent(producer, name)
        assert sent.one() == "kafka"
        producer.doubt.set()
        assert sent.one() == "outbox"
        producer.doubt.clear()
        until(lambda: producer.state.broker == "up", within=20, what="another producer")
        assert sent.one() == "outbox"
        fleet.active()
        until(lambda: producer.state.lanes == 0, within=20, what="the key back at Kafka")
        assert sent.one() == "kafka"
        times = Counter(ids(consume(stack.kafka.bootstrap, name)))
        assert sorted(times.values()) == [1, 1, 1, 2]
    handler = Handler(fails="", never="")
    with handling(stack, name, handler.alone, inbox={"dsn": inbox}, policy="every"):
        until(lambda: len(effects(inbox)) >= len(times), within=30, what="the effects")
        until(lambda: sum(map(len, handler.calls)) >= len(times), within=30, what="calls")
    assert effects(inbox) == list(sent.accepted)
