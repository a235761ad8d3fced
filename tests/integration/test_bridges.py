"""The programs of docs/bridges that write: each row with its event, or neither."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import httpx
import psycopg
import pytest
import sqlalchemy
import uvicorn
from django.db import transaction
from fastapi.testclient import TestClient
from flask import Flask
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext import asyncio as asyncio_of
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from examples.bridges import fastapi_app, flask_app, litestar_app, sqlalchemy_events
from outbox import NoTransaction, schema
from tests.support.documents import ROOT, blocks
from tests.support.fix_django import django_database, set_up
from tests.support.writers import url
from tests.support.written import stored


@pytest.fixture
def shop(database: str) -> str:
    """A database with an outbox, where COMMIT refuses an order that is there already."""
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("CREATE TABLE orders (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
    return database


def kept(dsn: str) -> tuple[int, int]:
    """Return how many orders and how many events are committed."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM orders").fetchone()
    assert row is not None
    return row[0], len(stored(dsn))


def answers(dsn: str, make: Callable[[AsyncEngine], Any], *orders: int) -> list[int]:
    """Return the status of a POST for each order, as a client over HTTP sees it."""

    async def ask() -> list[int]:
        engine = create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool)
        service = make(engine)
        transport = httpx.ASGITransport(service, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            found = [(await client.post(f"/orders/{order}")).status_code for order in orders]
        await engine.dispose()
        return found

    return asyncio.run(ask())


def test_fastapi_answers_after_commit(shop: str) -> None:
    assert answers(shop, lambda engine: fastapi_app.app(engine, "orders"), 1, 2, 1) == [
        201,
        201,
        500,
    ]
    assert kept(shop) == (2, 2)


def test_the_default_scope_of_fastapi_answers_201_for_what_is_not_committed(shop: str) -> None:
    trap = partial(fastapi_app.app, topic="orders", scope="request")
    assert answers(shop, trap, 1, 1) == [201, 201]
    assert kept(shop) == (1, 1)


def test_litestar_answers_after_commit(shop: str) -> None:
    assert answers(shop, lambda engine: litestar_app.app(engine, "orders"), 1, 2, 1) == [
        201,
        201,
        500,
    ]
    assert kept(shop) == (2, 2)


def test_flask_answers_after_commit(shop: str) -> None:
    engine = sqlalchemy.create_engine(url(shop, "psycopg"), poolclass=NullPool)
    client = flask_app.app(engine, "orders").test_client()
    assert [client.post(f"/orders/{order}").status_code for order in (1, 2, 1)] == [201, 201, 500]
    assert kept(shop) == (2, 2)


def test_sqlalchemy_listeners_record_for_sync_and_async_sessions(shop: str) -> None:
    engine = sqlalchemy.create_engine(url(shop, "psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        session.add(sqlalchemy_events.Order(id=1))
        session.commit()
        session.add(sqlalchemy_events.Order(id=2))
        session.flush()
        session.rollback()

    async def use() -> None:
        made = create_async_engine(url(shop, "asyncpg"), poolclass=NullPool)
        async with AsyncSession(made) as session, session.begin():
            session.add(sqlalchemy_events.Order(id=3))
        await made.dispose()

    asyncio.run(use())
    assert kept(shop) == (2, 2)
    assert stored(shop, "key") == [b"1", b"3"]


@pytest.fixture
def signals(shop: str) -> Iterator[Any]:
    set_up()
    module = import_module("examples.bridges.django_signals")
    with django_database(shop):
        yield module


def test_a_signal_handler_of_django_writes_in_the_transaction_of_the_row(
    shop: str, signals: Any
) -> None:
    with transaction.atomic():
        signals.Order.objects.create(id=1)
    undone(lambda: signals.Order.objects.create(id=2))
    assert kept(shop) == (1, 1)


def undone(act: Callable[[], Any]) -> None:
    """Roll back what `act` does."""
    with transaction.atomic():
        act()
        transaction.set_rollback(True)


def test_django_in_autocommit_keeps_the_row_without_its_event_and_raises(
    shop: str, signals: Any
) -> None:
    with pytest.raises(NoTransaction, match="autocommit"):
        signals.Order.objects.create(id=1)
    assert kept(shop) == (1, 0)  # the trap that the page names
    with transaction.atomic():
        signals.Order.objects.bulk_create([signals.Order(id=2)])
    assert kept(shop) == (2, 0)  # Django sends no signal


@pytest.mark.parametrize("framework", ["flask", "fastapi"])
def test_the_page_serves_a_program(
    shop: str, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in conninfo_to_dict(shop).items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))
    monkeypatch.syspath_prepend(ROOT / "examples/bridges")
    for module, name in ((sqlalchemy, "create_engine"), (asyncio_of, "create_async_engine")):
        # Nobody disposes of the engine of a program that ends with its process.
        monkeypatch.setattr(module, name, partial(getattr(module, name), poolclass=NullPool))
    served: list[Any] = []
    monkeypatch.setattr(Flask, "run", lambda app, **_: served.append(app))
    monkeypatch.setattr(uvicorn, "run", lambda app, **_: served.append(app))
    (code,) = (
        block.text
        for block in blocks(ROOT / "docs/bridges/index.md", "python")
        if f"from {framework}_app import app" in block.text
    )
    exec(compile(code, "serve.py", "exec"), {})  # noqa: S102  # our own page
    if framework == "flask":
        assert served[0].test_client().post("/orders/1").status_code == 201
    else:
        with TestClient(served[0]) as client:
            assert client.post("/orders/1").status_code == 201
    assert kept(shop) == (1, 1)


def test_what_a_page_shows_stands_in_its_program() -> None:
    # Without white space, since a page shows the inner lines of a function by themselves.
    shown = [
        (page.name, block.name, "".join(block.text.split()))
        for page in sorted((ROOT / "docs/bridges").glob("*.md"))
        for block in blocks(page, "python")
        if block.name
    ]
    programs = {
        each.name: "".join(each.read_text().split())
        for each in (ROOT / "examples/bridges").glob("[a-z]*.py")
    }
    assert {name for _, name, _ in shown} == programs.keys()
    assert [(page, text) for page, name, text in shown if text not in programs[name]] == []
