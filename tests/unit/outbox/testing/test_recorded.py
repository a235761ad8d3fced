"""A unit test needs no database: what `write` is given is checked, and recorded."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import Rollback
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from outbox import Event, InvalidEvent, NoTransaction, UnsupportedConnection, write, write_async
from outbox.sqlalchemy import record
from outbox.testing import recorded, written, written_async


def order(number: int, **more: Any) -> Event:
    return Event(topic="orders", key="k", type="Placed", value={"number": number}, **more)


def numbers(events: list[Event]) -> list[int]:
    return [event.value["number"] for event in events]


def test_events_are_recorded_as_a_reader_gets_them() -> None:
    given = order(1, headers=[("tenant", "a"), ("ce_sequence", "7")], subject="o-1")
    with recorded() as conn:
        write(conn, given)

    (event,) = conn.events
    assert (event.key, event.value, event.id) == ("k", {"number": 1}, given.id)
    assert (event.time, event.subject) == (given.time, "o-1")
    assert event.headers == (("tenant", b"a"), ("ce_sequence", b"7"))
    assert event.media_type() == "application/json"


@pytest.mark.parametrize(
    ("value", "content_type", "read"),
    [
        ("plain", None, "plain"),
        (b"\x00\xff", None, b"\x00\xff"),
        (None, None, None),
        (b"{", "application/json", b"{"),
        (b'{"a": 1}', "application/cloudevents+json", {"a": 1}),
    ],
)
def test_a_value_is_decoded_by_its_media_type(
    value: object, content_type: str | None, read: object
) -> None:
    with recorded() as conn:
        write(conn, Event(topic="t", type="T", value=value, content_type=content_type))
    assert conn.events[0].value == read


def test_several_events_of_one_call_keep_their_order_and_their_own_headers() -> None:
    with recorded() as conn:
        write(conn, order(1), order(2, headers=[("a", "b"), ("c", None)]), order(3))
    assert numbers(conn.events) == [1, 2, 3]
    assert [event.headers for event in conn.events] == [(), (("a", b"b"), ("c", None)), ()]


def test_a_savepoint_that_is_rolled_back_takes_its_events_with_it() -> None:
    with recorded() as conn:
        write(conn, order(1))
        with suppress(ZeroDivisionError), conn.transaction():
            write(conn, order(2))
            raise ZeroDivisionError
        with conn.transaction():
            write(conn, order(3))
            with conn.transaction():
                write(conn, order(4))
                raise Rollback
        with conn.transaction(force_rollback=True):
            write(conn, order(5))
        assert numbers(written(conn)) == [1, 3]
        assert conn.committed == []
    assert numbers(conn.committed) == [1, 3]


def test_a_commit_and_a_rollback_count() -> None:
    with recorded() as conn:
        write(conn, order(1))
        conn.commit()
        write(conn, order(2))
        conn.rollback()
        write(conn, order(3))
        assert numbers(written(conn)) == [3]
        assert numbers(written(conn, which="all")) == [1, 3]
        assert (numbers(conn.committed), numbers(conn.events)) == ([1], [1, 3])


def test_an_exception_of_the_block_rolls_back() -> None:
    with suppress(ZeroDivisionError), recorded() as conn:
        write(conn, order(1))
        raise ZeroDivisionError
    assert conn.events == []


def test_the_codes_own_statements_are_noted_and_answered() -> None:
    def answers(query: str, params: object) -> list[tuple[object, ...]]:
        return [(7, params)] if query.startswith("SELECT") else []

    with recorded(answers=answers) as conn:
        conn.execute("INSERT INTO orders VALUES (%s)", [1])
        with conn.cursor() as cursor:
            assert cursor.execute("SELECT id", {"a": 1}).fetchone() == (7, {"a": 1})
            assert cursor.fetchone() is None
        write(conn, order(1))

    assert conn.statements == [
        ("INSERT INTO orders VALUES (%s)", [1]),
        ("SELECT id", {"a": 1}),
    ]


def test_it_passes_for_a_connection_and_says_what_it_lacks() -> None:
    with recorded() as conn:
        assert isinstance(conn, psycopg.Connection)
        with pytest.raises(AttributeError, match=r"has no server.*outbox_database"):
            _ = conn.pgconn
        with pytest.raises(AttributeError, match=r"no info\.server_version; .*outbox_database"):
            _ = conn.info.server_version


def test_in_autocommit_mode_an_event_needs_a_block() -> None:
    with recorded(autocommit=True) as conn:
        with pytest.raises(NoTransaction, match=r"open `with conn.transaction\(\):`"):
            write(conn, order(1))
        with conn.transaction():
            write(conn, order(2))
    assert numbers(conn.committed) == [2]


def test_an_async_connection_is_awaited() -> None:
    async def place() -> None:
        with recorded("psycopg_async") as conn:
            with pytest.raises(UnsupportedConnection, match="has to be awaited"):
                write(conn, order(1))  # type: ignore[arg-type]  # the mistake
            async with conn.transaction():
                cursor = await conn.execute("SELECT 1")
                assert await cursor.fetchone() is None
                await write_async(conn, order(2))
                assert numbers(await written_async(conn)) == [2]
        assert numbers(conn.committed) == [2]

    asyncio.run(place())


def test_a_connection_of_asyncpg_needs_a_block_as_a_real_one_does() -> None:
    async def place() -> None:
        with recorded("asyncpg", answers=lambda *_: [(7,)]) as conn:
            with pytest.raises(NoTransaction, match=r"async with conn\.transaction"):
                await write_async(conn, order(1))
            async with conn.transaction():
                await write_async(conn, order(2))
                with suppress(ZeroDivisionError):
                    async with conn.transaction():
                        await write_async(conn, order(3))
                        raise ZeroDivisionError
            assert await conn.fetchval("SELECT $1", 1) == 7
            assert await conn.execute("update t set a = 1") == "UPDATE"
        assert numbers(conn.committed) == [2]

    asyncio.run(place())


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_a_session_of_any_database_is_recorded_with_its_savepoints(session: Session) -> None:
    with recorded(session) as made:
        session.execute(text("CREATE TABLE orders (id int)"))
        write(session, order(1))
        with session.begin_nested():
            write(session, order(2))
        savepoint = session.begin_nested()
        write(session, order(3))
        savepoint.rollback()
        assert numbers(written(session)) == [1, 2]
        assert made.committed == []
        session.commit()
        write(session, order(4))
        session.rollback()
        write(session, order(5))
        session.close()
    assert numbers(made.events) == numbers(made.committed) == [1, 2]


def test_what_a_session_keeps_is_recorded_once_it_commits(session: Session) -> None:
    with recorded(session) as made:
        record(session, order(1))
        with session.begin_nested():
            record(session, order(2))
        savepoint = session.begin_nested()
        record(session, order(3))
        session.flush()
        savepoint.rollback()
        assert made.committed == []
        session.commit()
        record(session, order(4))
        session.rollback()
    assert numbers(made.events) == numbers(made.committed) == [1, 2]


def test_after_the_block_a_session_is_no_longer_recorded(session: Session) -> None:
    with recorded(session):
        write(session, order(1))
    with pytest.raises(UnsupportedConnection, match=r"sqlite\+pysqlite"):
        write(session, order(2))


def test_an_async_session_is_recorded() -> None:
    async def place() -> None:
        async with AsyncSession() as session:
            with recorded(session) as made:
                await write_async(session, order(1))
                assert numbers(await written_async(session)) == [1]
                await session.commit()
        assert numbers(made.committed) == [1]

    asyncio.run(place())


@pytest.mark.parametrize("given", ["psycopg2", object()])
def test_another_kind_of_connection_is_refused_with_those_that_there_are(given: Any) -> None:
    with pytest.raises(UnsupportedConnection, match="give one of psycopg, psycopg_async, asyncpg"):
        recorded(given)


def test_a_bad_event_records_nothing() -> None:
    with recorded() as conn:
        with pytest.raises(InvalidEvent, match="Dovecote's own"):
            write(conn, order(1), Event(topic="__offsets", type="T"))
        write(conn)
    assert conn.events == []
