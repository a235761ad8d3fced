"""A table of orders, events about them, and the ones that were written."""

from typing import Any

import psycopg
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from outbox import Event
from tests.support.written import stored


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")


def of(number: int, **fields: Any) -> Event[Any]:
    return Event(
        **{"topic": "orders", "type": "Placed", "key": "k", "value": b"%d" % number, **fields}
    )


def values(dsn: str) -> list[str]:
    """Return the numbers of the events that another session sees, in order of position."""
    return [bytes(each).decode() for each in stored(dsn)]


def rows(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        found = conn.execute("SELECT count(*) FROM orders").fetchone()
    assert found is not None
    return int(found[0])
