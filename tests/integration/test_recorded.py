"""A recorded connection and a real one take the same events, and refuse the same."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import (
    DovecoteError,
    Event,
    Limits,
    NotAllowed,
    NoTransaction,
    SchemaMissing,
    UnsupportedConnection,
    write,
    write_async,
)
from outbox.testing import recorded, written, written_async

Write = Callable[[Any], None]

GOOD = Event(topic="orders", key="k", type="Placed", value={"a": 1})
EVENTS = [
    GOOD,
    Event(topic="orders", key=b"\xff", type="T", value=b"\x00", headers=[("a", "b"), ("c", None)]),
    Event(topic="o", type="T", value="text", subject="s", time=datetime(2020, 1, 1, tzinfo=UTC)),
    Event(topic="o", type="T", key="k", traceparent=f"00-{'a' * 32}-{'b' * 16}-01"),
]

BAD: dict[str, Write] = {
    "a topic of Kafka's": lambda conn: write(conn, Event(topic="__a", type="T")),
    "a topic of ours": lambda conn: write(conn, Event(topic="dovecote.progress.a", type="T")),
    "an id that is no UUID": lambda conn: write(conn, Event(topic="a", type="T", id="1")),
    "a large key": lambda conn: write(conn, Event(topic="a", type="T", key="k" * 20_000)),
    "a large value": lambda conn: write(conn, GOOD, limits=Limits(value=3)),
    "large headers": lambda conn: write(conn, GOOD, limits=Limits(headers=3)),
    "NUL in a text": lambda conn: write(conn, Event(topic="a", type="a\0b")),
    "what JSON cannot hold": lambda conn: write(conn, Event(topic="a", type="T", value={1j})),
    "no event": lambda conn: write(conn, {"topic": "a"}),
    "a good one and a bad one": lambda conn: write(conn, GOOD, Event(topic="__a", type="T")),
}


@pytest.fixture
def real(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn) as conn:
        yield conn


def refusal(conn: Any, call: Write) -> tuple[type, str]:
    with pytest.raises((DovecoteError, ValueError, TypeError)) as caught:
        call(conn)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_both_refuse_alike(real: psycopg.Connection, bad: Write) -> None:
    engine = create_engine(make_url("sqlite://"))
    with recorded() as conn, Session(engine) as session, recorded(session) as made:
        expected = _without_ids(refusal(real, bad))
        assert _without_ids(refusal(conn, bad)) == expected
        assert _without_ids(refusal(session, bad)) == expected
        assert conn.events == made.events == written(real) == []
    engine.dispose()


def _without_ids(said: tuple[type, str]) -> tuple[type, str]:
    kind, text = said
    return kind, " ".join("ID" if _is_id(word) else word for word in text.split(" "))


def _is_id(word: str) -> bool:
    return len(word) == 36 and word.count("-") == 4


@pytest.mark.parametrize("events", [[each] for each in EVENTS] + [EVENTS, [GOOD]])
def test_both_return_the_same_events(real: psycopg.Connection, events: list[Event]) -> None:
    with recorded() as conn:
        write(conn, *events)
        write(real, *events)
        assert written(conn) == written(real)
        assert [each.id for each in written(real)] == [each.id for each in events]


@pytest.mark.parametrize("kind", ["psycopg", "psycopg_async", "asyncpg"])
def test_both_refuse_a_connection_that_ties_nothing(dsn: str, kind: str) -> None:
    async def both() -> tuple[str, str]:
        if kind == "asyncpg":
            given: dict[str, Any] = conninfo_to_dict(dsn)
            names = {"dbname": "database"}
            real: Any = await asyncpg.connect(**{names.get(k, k): v for k, v in given.items()})
        else:
            real = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
        try:
            with (
                recorded("asyncpg")
                if kind == "asyncpg"
                else recorded("psycopg_async", autocommit=True) as conn
            ):
                return await _tied(real), await _tied(conn)
        finally:
            await real.close()

    if kind == "psycopg":
        with psycopg.connect(dsn, autocommit=True) as real, recorded(autocommit=True) as conn:
            refused = refusal(real, lambda each: write(each, GOOD))
            assert refused == refusal(conn, lambda each: write(each, GOOD))
            assert refused[0] is NoTransaction
        return
    said, recorded_said = asyncio.run(both())
    assert said == recorded_said


async def _tied(conn: Any) -> str:
    with pytest.raises(NoTransaction) as caught:
        await write_async(conn, GOOD)
    return str(caught.value)


def test_written_has_the_open_transactions_events_only_with_its_savepoints(dsn: str) -> None:
    first, second, third = (Event(topic="a", type="T", value=each) for each in "123")
    with psycopg.connect(dsn) as conn, psycopg.connect(dsn) as other:
        write(other, first)
        other.commit()
        assert written(conn) == []
        write(conn, second)
        with conn.transaction(force_rollback=True):
            write(conn, third)
            assert [each.value for each in written(conn)] == ["2", "3"]
        assert [each.value for each in written(conn)] == ["2"]
        assert [each.value for each in written(conn, which="all")] == ["1", "2"]
        assert written(other) == []
        conn.commit()
        assert written(conn) == []


def test_written_reads_through_every_library(dsn: str) -> None:
    url = "postgresql+{}://"
    given: dict[str, Any] = conninfo_to_dict(dsn)
    names = {"dbname": "database"}
    arguments: Any = {names.get(k, k): v for k, v in given.items()}

    async def on_async_ones() -> None:
        conn = await asyncpg.connect(**arguments)
        try:
            async with conn.transaction():
                await write_async(conn, GOOD)
                assert [each.id for each in await written_async(conn)] == [GOOD.id]
            with pytest.raises(NoTransaction):
                await written_async(conn)
        finally:
            await conn.close()
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            await write_async(other, GOOD)
            assert [each.id for each in await written_async(other)] == [GOOD.id]
            await other.rollback()
            with pytest.raises(UnsupportedConnection, match="written_async"):
                written(other)  # type: ignore[arg-type]  # the mistake
        engine = create_async_engine(url.format("asyncpg"), connect_args=arguments)
        async with AsyncSession(engine) as session:
            await write_async(session, GOOD)
            assert [each.id for each in await written_async(session)] == [GOOD.id]
        await engine.dispose()

    asyncio.run(on_async_ones())
    engine = create_engine(url.format("psycopg"), connect_args=given)
    with Session(engine) as session:
        write(session, GOOD)
        assert [each.id for each in written(session)] == [GOOD.id]
    with engine.connect() as conn:
        write(conn, GOOD)
        assert [each.id for each in written(conn)] == [GOOD.id]
    engine.dispose()


def test_written_says_why_it_cannot_read(dsn: str, database: str) -> None:
    with psycopg.connect(database) as conn, pytest.raises(SchemaMissing, match="dovecote init"):
        written(conn)
    name = "reader_of_nothing"
    as_other = make_conninfo(dsn, user=name, password="a")  # noqa: S106  # for a moment
    with psycopg.connect(dsn) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'a'")
    try:
        with (
            psycopg.connect(as_other) as conn,
            pytest.raises(NotAllowed, match="GRANT SELECT"),
        ):
            written(conn)
    finally:
        with psycopg.connect(dsn) as conn:
            conn.execute(f"DROP ROLE {name}")


def test_from_the_log_nobody_reads_what_is_not_committed(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "CREATE OR REPLACE FUNCTION outbox.writes_to_wal() RETURNS boolean"
            " LANGUAGE sql IMMUTABLE AS 'SELECT true'"
        )
        with pytest.raises(DovecoteError, match=r"capture wal.*recorded\(\)"):
            written(conn)
        conn.rollback()
