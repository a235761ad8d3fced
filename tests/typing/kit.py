"""Tests of a user's service with the kit, and settings in code, as in `docs/testing.md`."""

from typing import Any, assert_type

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession

from dedup import ConsumerSettings, Inbox, Trial
from outbox import Event, write, write_async
from outbox.testing import Recorded, recorded, written, written_async


def place(conn: psycopg.Connection[Any], order_id: str) -> None:
    """Write on a connection of psycopg."""
    write(conn, Event(topic="orders", key=order_id, type="Placed", value={"id": order_id}))


def events() -> list[Event]:
    """Give the service a recorded connection: it is one of psycopg."""
    with recorded() as conn:
        place(conn, "o-1")
        assert_type(written(conn), list[Event])
        Trial(lambda event, tx: write(tx, event), tx=conn)
    return conn.committed


async def awaited(session: AsyncSession) -> None:
    """Record on connections that are awaited."""
    with recorded("psycopg_async") as conn:
        await write_async(conn, Event(topic="a", type="T"))
        assert_type(await written_async(conn), list[Event])
    with recorded("asyncpg") as other:
        async with other.transaction():
            await write_async(other, Event(topic="a", type="T"))
    with recorded(session) as made:
        assert_type(made, Recorded)
        await write_async(session, Event(topic="a", type="T"))


def settings() -> ConsumerSettings:
    """Name topics in a list, and without a plugin of pydantic."""
    return ConsumerSettings(topics=["orders"], group="a", kafka={"bootstrap.servers": "a:1"})


def with_inbox(dsn: str) -> Trial:
    """Try a handler in real transactions."""

    def bill(event: Event, tx: psycopg.Connection[Any]) -> None:
        tx.execute("SELECT %s", [event.id])

    return Trial(bill, begin=lambda: psycopg.connect(dsn), inbox=Inbox("billing"))
