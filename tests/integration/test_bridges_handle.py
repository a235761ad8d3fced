"""The programs of docs/bridges that handle events, from the real outbox through the real relay."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest
from celery.contrib.testing.worker import start_worker
from taskiq import InMemoryBroker

from dedup import Consumer, ConsumerSettings
from dedup.inbox import schema as inbox_schema
from examples.bridges import celery_tasks, faststream_app, taskiq_tasks
from outbox import Event, write
from tests.support.consuming import consumes
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import Relays
from tests.support.waiting import patient, until

ORDERS = list(range(20))


@pytest.fixture
def shop(fleet: Relays, topic: MakeTopic) -> tuple[str, str]:
    """A database with an outbox, an inbox and receipts; a topic; and a relay between them."""
    name = topic(3)
    with psycopg.connect(fleet.dsn) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE receipts (id int)")
        place(conn, name, ORDERS)
    fleet.active()
    return fleet.dsn, name


def place(conn: psycopg.Connection, topic: str, orders: Iterable[int]) -> None:
    for order in orders:
        key = f"{order % len(ORDERS)}"
        write(conn, Event(topic=topic, type="OrderPlaced", key=key, value={"order": order}))


def receipts(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("SELECT id FROM receipts ORDER BY id")]


def settings(fleet: Relays, topic: str, **fields: object) -> ConsumerSettings:
    return ConsumerSettings.model_validate(
        {
            "topics": [topic],
            "group": f"enqueue-{topic}",
            "kafka": {"bootstrap.servers": fleet.bootstrap},
            "start": "earliest",
            **fields,
        }
    )


def test_celery_runs_a_task_for_each_event_and_its_effect_once(
    fleet: Relays, shop: tuple[str, str], tmp_path: Path
) -> None:
    dsn, topic = shop
    app = celery_tasks.tasks("filesystem://", dsn)
    folder = tmp_path / "queue"
    folder.mkdir()
    control = tmp_path / "control"
    app.conf.broker_transport_options = {
        "data_folder_in": str(folder),
        "data_folder_out": str(folder),
        "control_folder": str(control),
    }
    with (
        start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=patient(30)),
        consumes(celery_tasks.consumer(app, settings(fleet, topic))),
    ):
        until(lambda: receipts(dsn) == ORDERS, within=60, what="a receipt of each order")
        # A consumer that died before its offset was committed enqueues its events again.
        again = {"group": f"again-{topic}"}
        seen = []
        handle = celery_tasks.enqueue(app)

        def twice(event: Event) -> None:
            handle(event)
            seen.append(event.id)

        with consumes(Consumer(settings(fleet, topic, **again), twice)):
            until(lambda: len(seen) == len(ORDERS), within=60, what="all enqueued twice")
        until(lambda: not list(folder.iterdir()), within=60, what="an empty queue")
    assert receipts(dsn) == ORDERS


def test_taskiq_runs_a_task_for_each_event_and_its_effect_once(
    fleet: Relays, shop: tuple[str, str]
) -> None:
    dsn, topic = shop
    broker = InMemoryBroker(await_inplace=True)
    handle = taskiq_tasks.enqueue(broker, dsn)
    for group in ("first", "again"):
        seen: list[str] = []

        async def told(event: Event, seen: list[str] = seen) -> None:
            await handle(event)
            seen.append(event.id)

        consumer = Consumer(settings(fleet, topic, group=f"{group}-{topic}"), told)
        with consumes(consumer):
            until(lambda seen=seen: len(seen) == len(ORDERS), within=60, what="all enqueued")  # type: ignore[misc]
    assert receipts(dsn) == ORDERS


def test_faststream_handles_each_event_once_though_it_reads_them_twice(
    fleet: Relays, shop: tuple[str, str]
) -> None:
    dsn, topic = shop

    later = [order + 100 for order in ORDERS]

    async def use(group: str, wanted: list[int]) -> None:
        broker = faststream_app.broker(fleet.bootstrap, dsn, topic, group=f"{group}-{topic}")
        async with broker:
            await broker.start()
            await asyncio.to_thread(
                until, lambda: receipts(dsn) == wanted, within=60, what="a receipt of each order"
            )

    asyncio.run(use("first", ORDERS))
    with psycopg.connect(dsn) as conn:
        place(conn, topic, later)
    # Each key's later event comes after the one that this group reads a second time.
    asyncio.run(use("again", [*ORDERS, *later]))
