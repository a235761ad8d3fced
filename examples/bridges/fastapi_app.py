"""A FastAPI service whose session commits before it answers."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import Depends, FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from outbox import Event, write_async


def app(
    engine: AsyncEngine, topic: str, *, scope: Literal["function", "request"] = "function"
) -> FastAPI:
    """Return the service; `scope="request"`, FastAPI's default, is there to show the trap."""

    async def session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as opened, opened.begin():
            yield opened

    service = FastAPI()

    @service.post("/orders/{order}", status_code=201)
    async def place(
        order: int, tx: Annotated[AsyncSession, Depends(session, scope=scope)]
    ) -> dict[str, int]:
        await tx.execute(text("INSERT INTO orders VALUES (:order)"), {"order": order})
        await write_async(
            tx, Event(topic=topic, key=str(order), type="OrderPlaced", value={"order": order})
        )
        return {"order": order}

    return service
