"""Requests write events with their rows, and paid orders are shipped."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import create_engine

from dedup import Trial
from dovecote.testing import OutboxDatabase, OutboxEvents
from outbox import as_event
from outbox.testing import recorded
from shop.events import OrderPaid, OrderPlaced
from shop.service import Base, app
from shop.shipping import handle


@pytest.fixture
def client(
    outbox_database: OutboxDatabase, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    engine = create_engine(outbox_database.url("psycopg"))
    Base.metadata.create_all(engine)
    engine.dispose()
    monkeypatch.setenv("SHOP_URL", outbox_database.url("asyncpg"))
    with TestClient(app) as client:
        yield client


def test_an_order_that_is_placed_and_paid_has_two_events(
    client: TestClient, outbox_events: OutboxEvents
) -> None:
    order = client.post("/orders", json={"customer": "ann", "total": "9.90"}).json()["id"]
    assert client.post(f"/orders/{order}/pay").json() == {"state": "paid"}
    placed, paid = outbox_events()
    assert (placed.type, placed.key, placed.value["total"]) == ("OrderPlaced", order, "9.90")
    assert (paid.type, paid.key) == ("OrderPaid", order)


def test_what_is_refused_writes_no_event(client: TestClient, outbox_events: OutboxEvents) -> None:
    order = client.post("/orders", json={"customer": "ann", "total": "9.90"}).json()["id"]
    assert client.post(f"/orders/{order}/cancel").status_code == 200
    assert client.post(f"/orders/{order}/pay").status_code == 409
    assert client.post("/orders/no-such/pay").status_code == 404
    assert [event.type for event in outbox_events()] == ["OrderPlaced", "OrderCancelled"]


def test_a_paid_order_is_shipped_once_although_its_event_comes_twice() -> None:
    paid = as_event(OrderPaid("order-1", datetime(2026, 11, 1, tzinfo=UTC)))
    placed = as_event(OrderPlaced("order-1", "ann", Decimal("9.90")))
    with recorded() as conn:
        trial = Trial(handle, tx=conn)
        trial.feed(placed, paid, paid)
    assert trial.ids("handled") == [paid.id]
    assert len(conn.statements) == 1
