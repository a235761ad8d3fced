"""A service and a consumer with typed events, as in `docs/typed.md`."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, assert_type

import psycopg
from pydantic import BaseModel

from dedup import Done, Result, Skip
from dedup.testing import Trial
from outbox import Event, Producer, as_event, event, write, write_async


@event("OrderPlaced", topic="orders", key="order_id", version=2)
@dataclass
class OrderPlaced:
    """A dataclass."""

    order_id: str
    total: Decimal
    at: datetime


@event("OrderPaid", topic="orders", key=lambda paid: paid.order_id)
class OrderPaid(BaseModel):
    """A pydantic model."""

    order_id: str
    card: str | None = None


def place(conn: psycopg.Connection[Any], order_id: str) -> None:
    """Write both: an object of a declared class is enough."""
    placed = OrderPlaced(order_id, Decimal("9.90"), datetime.now(UTC))
    write(conn, placed, OrderPaid(order_id=order_id))
    write(conn, as_event(placed, headers=[("tenant", "a")]))
    write(conn, Event(topic="orders", key=order_id, type="Other", value={"a": 1}))


async def place_async(conn: psycopg.AsyncConnection[Any], producer: Producer) -> None:
    """Write on a connection that is awaited, and send directly."""
    paid = OrderPaid(order_id="o-1")
    await write_async(conn, paid)
    await producer.send_async(paid)


def handle(event: Event[OrderPlaced] | Event[OrderPaid]) -> Result:
    """Take two types."""
    match event.value:
        case OrderPlaced(order_id=order_id, total=total):
            assert_type(total, Decimal)
            return Skip(f"{order_id} is free") if total == 0 else Done()
        case OrderPaid() as paid:
            assert_type(paid.card, str | None)
            return Done()


async def one(event: Event[OrderPlaced]) -> None:
    """Take one type."""
    assert_type(event.value, OrderPlaced)
    assert_type(event.value.total + 1, Decimal)


def several(events: list[Event[OrderPlaced | OrderPaid]]) -> None:
    """Take a list, with two types in one `Event`."""
    for each in events:
        assert_type(each.value, OrderPlaced | OrderPaid)


def plain(event: Event) -> None:
    """Take anything, as before."""
    assert event.value["order"]


def trials() -> list[Trial]:
    """Try the handlers."""
    return [Trial(handle), Trial(one), Trial(plain)]


def inferred() -> None:
    """Say what type checkers know of an event that is made."""
    assert_type(Event(topic="a", type="b", value=OrderPaid(order_id="1")), Event[OrderPaid])
