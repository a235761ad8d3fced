"""Celery tasks that come from the outbox: the task's effect happens once."""

from collections.abc import Callable
from typing import Any

import psycopg
from celery import Celery

from dedup import Consumer, ConsumerSettings, Done, Identity, Inbox, Result, Skip
from outbox import Event

TASK = "shop.send_receipt"


def tasks(broker: str, dsn: str) -> Celery:
    """Return the application of the workers."""
    app = Celery("shop", broker=broker)
    app.conf.task_acks_late = True  # a worker that dies leaves its task to another one
    inbox = Inbox("receipts")

    @app.task(name=TASK)  # type: ignore[untyped-decorator]  # Celery ships no types
    def send_receipt(source: str, event_id: str, order: int) -> bool:
        with psycopg.connect(dsn) as tx:
            if isinstance(inbox.take(tx, Identity(source, event_id)), Skip):
                return False  # an earlier copy of this task has committed
            tx.execute("INSERT INTO receipts VALUES (%s)", [order])
        return True

    return app


def enqueue(app: Celery) -> Callable[[Event[Any]], Result]:
    """Return the consumer's handler; it is done once the broker has taken the task."""

    def handle(event: Event[Any]) -> Result:
        app.send_task(
            TASK,
            args=[event.source, event.id, event.value["order"]],
            task_id=event.id,
            retry=False,  # what it raises is a failed attempt, which the consumer repeats
        )
        return Done()

    return handle


def consumer(app: Celery, settings: ConsumerSettings) -> Consumer:
    """Return the consumer that enqueues a task for each event."""
    return Consumer(settings, enqueue(app))
