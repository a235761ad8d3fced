"""The events of the shop: what other services may rely on."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from outbox import event


@event("OrderPlaced", topic="orders", key="order_id")
@dataclass
class OrderPlaced:
    order_id: str
    customer: str
    total: Decimal


@event("OrderPaid", topic="orders", key="order_id")
@dataclass
class OrderPaid:
    order_id: str
    at: datetime


@event("OrderCancelled", topic="orders", key="order_id")
@dataclass
class OrderCancelled:
    order_id: str
    reason: str | None = None
