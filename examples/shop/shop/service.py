"""The HTTP service: each request changes an order and writes its event in one transaction."""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated
from uuid import uuid4

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from outbox import write_async
from shop.events import OrderCancelled, OrderPaid, OrderPlaced


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    engine = create_async_engine(os.environ["SHOP_URL"], pool_pre_ping=True)
    app.state.sessions = async_sessionmaker(engine)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_orders"

    id: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[Decimal]
    state: Mapped[str]


class NewOrder(BaseModel):
    customer: str
    total: Decimal


async def transaction(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions.begin() as session:
        yield session


# With this scope COMMIT comes before the answer; otherwise a client hears 201 although it failed.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]


@app.post("/orders", status_code=201)
async def place(new: NewOrder, session: Transaction) -> dict[str, str]:
    order = Order(id=f"order-{uuid4()}", total=new.total, state="placed")
    session.add(order)
    await write_async(session, OrderPlaced(order.id, new.customer, new.total))
    return {"id": order.id}


@app.post("/orders/{order_id}/pay")
async def pay(order_id: str, session: Transaction) -> dict[str, str]:
    await move(session, order_id, "paid")
    await write_async(session, OrderPaid(order_id, datetime.now(UTC)))
    return {"state": "paid"}


@app.post("/orders/{order_id}/cancel")
async def cancel(order_id: str, session: Transaction) -> dict[str, str]:
    await move(session, order_id, "cancelled")
    await write_async(session, OrderCancelled(order_id))
    return {"state": "cancelled"}


async def move(session: AsyncSession, order_id: str, state: str) -> None:
    """Change an order that is placed; its row is locked until COMMIT, so its events keep order."""
    order = await session.get(Order, order_id, with_for_update=True)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    if order.state != "placed":
        raise HTTPException(409, f"order {order_id} is {order.state}")
    order.state = state
