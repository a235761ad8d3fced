"""A member can do nothing more with a partition that the group has given to another one."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from dedup.consumer import Consumer
from dedup.health import Health
from dedup.inbox import schema as inbox_schema
from dedup.inbox.claims import InboxClaims
from outbox import Event
from tests.support.consuming import consuming, event, produce, settings
from tests.support.fix_stack import NEW_GROUPS, MakeTopic, Servers
from tests.support.waiting import patient, until

# After this time, as short as possible, a member with a stuck poll thread is out of the group.
IMPATIENT = {"session.timeout.ms": "6000", "max.poll.interval.ms": "6000"}


class Stalling(Health):
    """Holds the poll thread where it is, when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.stands = threading.Event()

    def polled(self, *, progressed: bool, worked: bool = False) -> None:
        super().polled(progressed=progressed, worked=worked)
        if not self.goes_on.is_set():
            self.stands.set()
            self.goes_on.wait(patient(60))

    def stall(self) -> None:
        self.goes_on.clear()
        assert self.stands.wait(patient(10))


@pytest.fixture
def kafka(stack: Servers) -> str:
    return stack.kafka.bootstrap


@pytest.fixture
def inbox(stack: Servers, database: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of an inbox, with a table of effects beside it."""
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (nr bigserial, id text)")
    parts = psycopg.conninfo.conninfo_to_dict(stack.postgres.dsn)
    monkeypatch.setenv("PGPASSWORD", str(parts.get("password", "")))
    own = psycopg.conninfo.conninfo_to_dict(database)
    shown = {name: str(value) for name, value in own.items() if name != "password"}
    return {"dsn": psycopg.conninfo.make_conninfo(**shown)}


def effects(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM effects ORDER BY nr").fetchall()]


def open_transactions(dsn: str) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    with psycopg.connect(dsn) as conn:
        row = conn.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def forget(kafka: str, topic: str, *, before: int) -> None:
    """Make the log begin at an offset, so that nobody reads again what came before it."""
    place = TopicPartition(topic, 0, before)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.delete_records([place])[place].result(patient(20))


@contextmanager
def running(
    bootstrap: str, name: str, handle: Callable[..., Any], **given: Any
) -> Iterator[Consumer]:
    health = given.pop("health", None)
    consumer = Consumer(settings(bootstrap, name, **given), handle, health=health)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(consumer.run)
        try:
            yield consumer
        finally:
            if health is not None:
                health.goes_on.set()
            consumer.stop()
            run.result(patient(40))


def counted(consumer: Consumer, name: str, **labels: str) -> float:
    return sum(
        sample.value
        for metric in consumer.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"dovecote_consumer_{name}" and labels.items() <= sample.labels.items()
    )


@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "loop"])
def test_what_waits_behind_a_handler_is_not_begun_when_nothing_was_heard_of_the_group(
    kafka: str, topic: MakeTopic, *, awaited: bool
) -> None:
    name, health = topic(), Stalling()
    begun: list[str] = []
    release = threading.Event()

    def handle(given: Event) -> None:
        begun.append(given.id)
        if given.id == "k-0":
            release.wait(patient(60))

    async def handle_awaited(given: Event) -> None:
        handle(given)

    handler = handle_awaited if awaited else handle
    produce(kafka, event(name, "k", 0), event(name, "k", 1))
    with running(kafka, name, handler, kafka=IMPATIENT, health=health) as old:
        until(lambda: begun, within=20, what="the first handler at work")
        until(lambda: counted(old, "records_in_memory") == 2, within=10, what="one behind it")
        health.stall()
        forget(kafka, name, before=2)
        with consuming(kafka, name) as new:
            produce(kafka, event(name, "k", 2))
            new.has_handled(1, within=40)
            release.set()
            until(lambda: counted(old, "doubts_total"), within=10, what="that the second waits")
            health.goes_on.set()
            until(
                lambda: counted(old, "rebalances_total", kind="lost") == 1,
                within=20,
                what="that it knows",
            )
        assert new.ids == ["k-2"]
    assert begun == ["k-0"]


def test_no_effect_comes_behind_those_of_the_next_owner_though_its_handler_was_at_work(
    kafka: str, topic: MakeTopic, inbox: dict[str, str]
) -> None:
    name, health, dsn = topic(), Stalling(), inbox["dsn"]
    release, begun = threading.Event(), threading.Event()

    def handle(given: Event, tx: psycopg.Connection) -> None:
        tx.execute("INSERT INTO effects (id) VALUES (%s)", [given.id])
        if given.id == "k-0":
            begun.set()
            release.wait(patient(60))

    produce(kafka, event(name, "k", 0), event(name, "k", 1))
    with running(kafka, name, handle, kafka=IMPATIENT, inbox=inbox, health=health) as old:
        assert begun.wait(patient(20))
        until(lambda: counted(old, "records_in_memory") == 2, within=10, what="one behind it")
        health.stall()
        forget(kafka, name, before=2)
        with running(kafka, name, handle, inbox=inbox):
            produce(kafka, event(name, "k", 2))
            until(lambda: effects(dsn) == ["k-2"], within=40, what="the next owner's effect")
            release.set()
            until(lambda: not open_transactions(dsn), within=10, what="the end of the older one")
            health.goes_on.set()
            until(
                lambda: counted(old, "rebalances_total", kind="lost") == 1,
                within=20,
                what="that it knows",
            )
            produce(kafka, event(name, "k", 3))
            until(lambda: "k-3" in effects(dsn), within=20, what="the last effect")
    assert effects(dsn) == ["k-2", "k-3"]


@pytest.mark.parametrize(
    "protocol",
    [
        {"assignor": "range"},
        {"assignor": "cooperative-sticky"},
        pytest.param({"protocol": "consumer"}, marks=NEW_GROUPS),
    ],
    ids=lambda each: "-".join(each.values()),
)
def test_who_has_the_partition_claims_it_again(
    kafka: str, topic: MakeTopic, inbox: dict[str, str], protocol: dict[str, str]
) -> None:
    name, dsn = topic(2), inbox["dsn"]

    def handle(given: Event, tx: psycopg.Connection) -> None:
        tx.execute("INSERT INTO effects (id) VALUES (%s)", [given.id])

    with running(kafka, name, handle, inbox=inbox, **protocol) as consumer:
        produce(kafka, event(name, "k", 0))
        until(lambda: effects(dsn) == ["k-0"], within=20, what="the first effect")
        # Like a member that has just woken up and does not know yet that it is out of the group.
        claims = InboxClaims(dsn, name)
        claims.claim([(name, 0), (name, 1)])
        claims.close()
        produce(kafka, event(name, "k", 1), event(name, "k", 2))
        until(lambda: len(effects(dsn)) == 3, within=20, what="all effects")
    assert effects(dsn) == ["k-0", "k-1", "k-2"]
    assert counted(consumer, "refused_total") == 1
    assert counted(consumer, "records_total", result="handled") == 3
