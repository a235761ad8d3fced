"""A Litestar service whose session is a dependency that commits before the answer."""

from collections.abc import AsyncIterator

from litestar import Litestar, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from outbox import Event, write_async


def app(engine: AsyncEngine, topic: str) -> Litestar:
    """Return the ASGI application."""

    async def provide_tx() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as opened, opened.begin():
            yield opened

    @post("/orders/{order:int}")
    async def place(order: FromPath[int], tx: NamedDependency[AsyncSession]) -> dict[str, int]:
        await tx.execute(text("INSERT INTO orders VALUES (:order)"), {"order": order})
        await write_async(
            tx, Event(topic=topic, key=str(order), type="OrderPlaced", value={"order": order})
        )
        return {"order": order}

    return Litestar([place], dependencies={"tx": Provide(provide_tx)}, openapi_config=None)
