"""The consumer: each paid order gets one parcel, although events may come again."""

from typing import Any

import psycopg

from dedup import Done, Result, Skip
from outbox import Event
from shop.events import OrderCancelled, OrderPaid, OrderPlaced


def handle(
    event: Event[OrderPlaced] | Event[OrderPaid] | Event[OrderCancelled],
    tx: psycopg.Connection[Any],
) -> Result:
    match event.value:
        case OrderPaid(order_id=order_id, at=at):
            tx.execute("INSERT INTO parcels (order_id, paid_at) VALUES (%s, %s)", [order_id, at])
            return Done()
        case OrderPlaced() | OrderCancelled():
            return Skip("nothing to ship")
