"""Events that follow from the rows of a session, whoever changes them."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import outbox
from outbox.sqlalchemy import record

TOPIC = "orders"


@outbox.event("OrderPlaced", topic=TOPIC, key="order")
@dataclass(frozen=True)
class OrderPlaced:
    """An order that is new."""

    order: int


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """A row, and an event when it is new."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@event.listens_for(Session, "before_flush")
def tell(session: Session, *_: Any) -> None:  # noqa: ANN401  # SQLAlchemy's own
    """Record an event for each order that this flush inserts."""
    for row in session.new:
        if isinstance(row, Order):
            record(session, OrderPlaced(row.id))
