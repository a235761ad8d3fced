"""
A connection's adapter is found by its class; anything else gets an error that says what to do.
"""

import asyncio
import gc
import subprocess
import sys
import weakref
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db.backends.sqlite3.base import DatabaseWrapper
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

import outbox
from outbox import Event, UnsupportedConnection, write, write_async

EVENT = Event(topic="orders", type="OrderPlaced")
OPTIONAL = {"alembic", "asyncpg", "confluent_kafka", "django", "opentelemetry", "sqlalchemy"}

ONLY_PSYCOPG = """
import sys
import psycopg
from outbox import Event, write
from outbox.errors import DovecoteError
conn = psycopg.Connection.__new__(psycopg.Connection)
try:
    write(conn)
except AttributeError:  # it was never opened, but the adapter is there
    pass
try:
    write(object())
except TypeError:
    pass
assert "outbox.writing.psycopg" in sys.modules
print(*{name.partition(".")[0] for name in sys.modules})
"""


WITHOUT_GREENLET = """
import sys
sys.modules["greenlet"] = None  # as if it were not installed
from sqlalchemy import create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from dedup.inbox.transactions import Question, ask
from outbox import Event, UnsupportedConnection, write
engine = create_engine("sqlite://")
made = sessionmaker(engine)
with Session(engine) as one, made() as two, engine.connect() as three:
    for conn in (one, two, three, scoped_session(made)):
        for use in (
            lambda: write(conn, Event(topic="orders", type="OrderPlaced")),
            lambda: ask(conn, Question("inbox", "now()", (), str)),
        ):
            try:
                use()
            except UnsupportedConnection as error:
                assert "sqlite" in str(error) or "pysqlite" in str(error), error
            else:
                raise AssertionError
"""


class Unopened(asyncpg.Connection):
    """A connection that does not complain that it was never closed."""

    def __del__(self) -> None:
        pass


def made(kind: Any) -> Any:
    """Return an object of a connection's class that was never opened."""
    return kind.__new__(kind)


def test_nothing_is_imported_that_the_caller_has_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ONLY_PSYCOPG], capture_output=True, text=True, check=True
    )
    assert not OPTIONAL & set(done.stdout.split())


def test_sync_sessions_need_no_greenlet() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_GREENLET], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_class_of_a_session_is_kept() -> None:
    def used() -> weakref.ref[type]:
        session = orm.sessionmaker(sqlalchemy.create_engine("sqlite://"))()
        with session, pytest.raises(UnsupportedConnection):
            write(session, EVENT)
        return weakref.ref(type(session))

    kinds = [used() for _ in range(3)]
    gc.collect()
    assert [kind() for kind in kinds] == [None] * 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, r"cannot be written on builtins\.NoneType; give a connection of psycopg 3"),
        ("host=localhost", r"cannot be written on builtins\.str; give a connection"),
        (EVENT, r"on outbox\.event\.Event; give a connection"),
        (made(psycopg.Cursor), r"on psycopg\.Cursor; .* of a cursor its `connection`"),
        (made(sqlalchemy.Engine), r"base\.Engine; .*`with engine\.begin\(\) as conn:`"),
        (made(orm.sessionmaker), r"sessionmaker; give a connection or a session"),
        (made(asyncpg.Pool), r"Pool; .*`async with pool\.acquire\(\) as conn:`"),
        (made(DatabaseWrapper)._cursor, r"on builtins\.method"),
    ],
)
def test_what_is_no_connection_is_refused_by_its_name(given: Any, says: str) -> None:
    with pytest.raises(UnsupportedConnection, match=says):
        write(given, EVENT)
    with pytest.raises(TypeError, match=says):
        asyncio.run(write_async(given, EVENT))


@pytest.mark.parametrize(
    "kind",
    [
        psycopg.AsyncConnection,
        AsyncConnection,
        AsyncSession,
        async_scoped_session,
        Unopened,
        asyncpg.pool.PoolConnectionProxy,
    ],
    ids=str,
)
def test_what_has_to_be_awaited_is_sent_to_write_async(kind: type) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__} has to be awaited: `await write_async"):
        write(made(kind), EVENT)


@pytest.mark.parametrize(
    "kind",
    [
        psycopg.Connection,
        sqlalchemy.Connection,
        orm.Session,
        orm.scoped_session,
        DatabaseWrapper,
    ],
    ids=str,
)
def test_what_is_not_awaited_is_sent_to_write(kind: type) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__} is not awaited: `write\(conn"):
        asyncio.run(write_async(made(kind), EVENT))


def test_a_class_derived_from_a_librarys_is_the_librarys() -> None:
    derived = type("Mine", (AsyncSession,), {"__module__": "shop.models"})
    with pytest.raises(TypeError, match=r"shop\.models\.Mine has to be awaited"):
        write(made(derived), EVENT)


def test_sqlalchemy_on_another_database_or_driver_is_refused() -> None:
    with (
        sqlalchemy.create_engine("sqlite://").connect() as conn,
        pytest.raises(UnsupportedConnection, match=r"sqlite\+pysqlite; .* postgresql\+psycopg or"),
    ):
        write(conn, EVENT)


def test_django_on_another_database_is_refused() -> None:
    with pytest.raises(UnsupportedConnection, match=r"sqlite backend on .*takes PostgreSQL with"):
        write(made(DatabaseWrapper), EVENT)


def never_run(
    session: orm.Session,
    conn: sqlalchemy.Connection,
    registry: orm.scoped_session[orm.Session],
    plain: psycopg.Connection,
) -> None:
    """The view of a type checker on sync connections."""
    write(session)
    write(conn)
    write(registry)
    write(plain)
    write(EVENT)  # type: ignore[arg-type]  # that it is refused is what is tested
    write_async(session)  # type: ignore[arg-type, unused-coroutine]  # likewise
    write_async(conn)  # type: ignore[arg-type, unused-coroutine]  # likewise
    write_async(plain)  # type: ignore[arg-type, unused-coroutine]  # likewise


async def never_run_either(
    session: AsyncSession,
    conn: AsyncConnection,
    registry: async_scoped_session[AsyncSession],
    plain: psycopg.AsyncConnection,
    other: "asyncpg.Connection[Any]",
    pooled: "asyncpg.pool.PoolConnectionProxy[Any]",
) -> None:
    """The view of a type checker on async connections."""
    await write_async(session)
    await write_async(conn)
    await write_async(registry)
    await write_async(plain)
    await write_async(other)
    await write_async(pooled)
    write(session)  # type: ignore[arg-type]  # that it is refused is what is tested
    write(conn)  # type: ignore[arg-type]  # likewise
    write(other)  # type: ignore[arg-type]  # likewise


def test_the_public_names_are_all_there_and_sorted() -> None:
    assert sorted(outbox.__all__) == outbox.__all__
    assert all(hasattr(outbox, name) for name in outbox.__all__)
