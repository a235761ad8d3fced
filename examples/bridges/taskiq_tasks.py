"""taskiq tasks that come from the outbox: the task's effect happens once."""

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from taskiq import AsyncBroker

from dedup import Done, Identity, Inbox, Result, Skip
from outbox import Event


def enqueue(broker: AsyncBroker, dsn: str) -> Callable[[Event[Any]], Awaitable[Result]]:
    """Declare the task, and return the consumer's handler, which enqueues it."""
    inbox = Inbox("receipts")

    @broker.task(task_name="shop.send_receipt")
    async def send_receipt(source: str, event_id: str, order: int) -> bool:
        async with await psycopg.AsyncConnection.connect(dsn) as tx:
            if isinstance(await inbox.take_async(tx, Identity(source, event_id)), Skip):
                return False  # an earlier copy of this task has committed
            await tx.execute("INSERT INTO receipts VALUES (%s)", [order])
        return True

    async def handle(event: Event[Any]) -> Result:
        kicker = send_receipt.kicker().with_task_id(event.id)
        await kicker.kiq(event.source, event.id, event.value["order"])
        return Done()

    return handle
