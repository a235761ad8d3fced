"""Callers wait until Kafka has their events, with a real relay."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db.transaction import atomic
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outbox import (
    BadSettings,
    Event,
    NotAllowed,
    OpenTransaction,
    Parked,
    Published,
    SchemaMissing,
    TimedOut,
    UnsupportedConnection,
    published,
    published_async,
    write,
)
from outbox.schema import Roles, install
from tests.support.fix_django import django_database
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.parking import listed
from tests.support.parking import parked as operate
from tests.support.pooler import Pooler
from tests.support.relaying import Relays, commit, event, installed, on_kafka, relays
from tests.support.topics import alter_topic
from tests.support.waiting import patient, until

LONG = patient(30)
UNCOMPRESSED = {"compression.type": "none"}


@pytest.fixture(params=["table", "wal"])
def either(
    request: pytest.FixtureRequest, stack: Servers, database: str, tmp_path: Path
) -> Iterator[Relays]:
    """Relays of an outbox with either capture."""
    with relays(tmp_path, installed(database, request.param), stack.kafka.bootstrap) as fleet:
        yield fleet


def wait(dsn: str, of: Event, timeout: float = LONG) -> Published | Parked | TimedOut:
    with psycopg.connect(dsn) as conn:  # not in autocommit mode
        found = published(conn, of, timeout=timeout)
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        return found


def written(dsn: str, topic: str, number: int = 0) -> Event:
    made = event(topic, number)
    commit(dsn, made)
    return made


def test_a_caller_returns_once_kafka_has_the_event_whatever_else_is_committed(
    either: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    either.active()
    for number in range(3):
        made = written(either.dsn, name, number)
        # A transaction that is still open delays nobody.
        with psycopg.connect(either.dsn) as late:
            write(late, event(name, number, key="late"))
            found = wait(either.dsn, made)
            assert isinstance(found, Published), found
            assert on_kafka(either, name)[number] == made.id
            late.rollback()
    began = time.monotonic()
    # A caller finds what was published before, while nothing waits in the outbox.
    assert isinstance(wait(either.dsn, made), Published)
    assert time.monotonic() - began < patient(10)


def test_without_a_relay_the_time_is_over_and_with_one_it_is_published(
    either: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    made = written(either.dsn, name)
    late = wait(either.dsn, made, 0.3)
    assert isinstance(late, TimedOut)
    assert late.after == 0.3
    assert "may still do so" in late.said
    first = either.active()
    assert isinstance(wait(either.dsn, made), Published)
    first.kill()
    second = written(either.dsn, name, 1)
    # The relay that is gone has reported other events, and not this one.
    assert isinstance(wait(either.dsn, second, 1), TimedOut)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait, either.dsn, second)
        either.active()
        assert isinstance(waiting.result(), Published)
    assert on_kafka(either, name) == [made.id, second.id]


def test_a_parked_event_is_told_until_it_is_requeued(either: Relays, topic: MakeTopic) -> None:
    name = topic(1, max_message_bytes="3000")
    either.active(kafka=UNCOMPRESSED)
    large = Event(topic=name, type="Large", key="bad", value=" " * 5_000 + "0")
    behind, other = event(name, 1, key="bad"), event(name, 0, key="good")
    commit(either.dsn, large, behind, other)
    found = wait(either.dsn, large)
    assert isinstance(found, Parked), found
    assert name in found.said
    assert "'bad'" in found.said
    assert isinstance(wait(either.dsn, behind), Parked)
    assert isinstance(wait(either.dsn, other), Published)
    alter_topic(either.bootstrap, name, max_message_bytes="10000")
    assert len(listed(either)) == 2
    assert operate(either, "requeue", "--all", "--wait").returncode == 0
    assert isinstance(wait(either.dsn, behind), Published)
    assert set(on_kafka(either, name)) == {large.id, behind.id, other.id}


def test_a_relay_that_stands_still_has_published_nothing_yet(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active(lease="8s")
    relay.pause()
    made = written(fleet.dsn, name)
    assert isinstance(wait(fleet.dsn, made, 1), TimedOut)
    assert on_kafka(fleet, name) == []
    relay.resume()
    assert isinstance(wait(fleet.dsn, made), Published)


def test_every_library_waits(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    fleet.active()
    made = written(fleet.dsn, name)
    engine = sqlalchemy.create_engine(_url(fleet.dsn, "postgresql+psycopg"))
    with Session(engine) as session:
        assert isinstance(published(session, made, timeout=LONG), Published)
        session.execute(sqlalchemy.text("SELECT 1"))
        with pytest.raises(OpenTransaction):
            published(session, made, timeout=1)
    with engine.connect() as conn:
        assert isinstance(published(conn, made, timeout=LONG), Published)
    engine.dispose()

    async def awaited() -> None:
        async with await psycopg.AsyncConnection.connect(fleet.dsn) as one:
            assert isinstance(await published_async(one, made, timeout=LONG), Published)
            await one.execute("SELECT 1")
            with pytest.raises(OpenTransaction):
                await published_async(one, made, timeout=1)
        plain = _url(fleet.dsn, "postgresql").render_as_string(hide_password=False)
        pool = await asyncpg.create_pool(plain, min_size=1)
        async with pool, pool.acquire() as lent:
            assert isinstance(await published_async(lent, made, timeout=LONG), Published)
            async with lent.transaction():
                with pytest.raises(OpenTransaction):
                    await published_async(lent, made, timeout=1)
            with pytest.raises(UnsupportedConnection, match="has to be awaited"):
                published(lent, made, timeout=1)  # type: ignore[arg-type]
            with pytest.raises(SchemaMissing):
                await published_async(lent, made, timeout=1, schema="elsewhere")
        for driver in ("psycopg", "asyncpg"):
            loop = create_async_engine(_url(fleet.dsn, f"postgresql+{driver}"))
            async with AsyncSession(loop) as session:
                assert isinstance(await published_async(session, made, timeout=LONG), Published)
            await loop.dispose()

    asyncio.run(awaited())


def test_django_waits_outside_an_atomic_block(fleet: Relays, topic: MakeTopic) -> None:
    made = written(fleet.dsn, topic(1))
    fleet.active()
    with django_database(fleet.dsn) as conn:
        assert isinstance(published(conn, made, timeout=LONG), Published)
        with atomic(), pytest.raises(OpenTransaction, match=r"transaction\.atomic"):
            published(conn, made, timeout=1)
        with pytest.raises(UnsupportedConnection, match="is not awaited"):
            asyncio.run(published_async(conn, made, timeout=1))


def test_it_works_through_a_pooler(fleet: Relays, topic: MakeTopic) -> None:
    made = written(fleet.dsn, topic(1))
    fleet.active()
    pooler = Pooler(fleet.dsn)
    try:
        dsn = make_conninfo(fleet.dsn, host="127.0.0.1", port=pooler.port)
        with psycopg.connect(dsn, prepare_threshold=None) as conn:
            assert isinstance(published(conn, made, timeout=LONG), Published)
    finally:
        pooler.close()


def test_a_cancelled_call_leaves_the_connection_usable(fleet: Relays, topic: MakeTopic) -> None:
    made = written(fleet.dsn, topic(1))

    async def cancelled() -> None:
        async with await psycopg.AsyncConnection.connect(fleet.dsn, autocommit=True) as conn:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await published_async(conn, made, timeout=LONG)
            assert await (await conn.execute("SELECT 1")).fetchone() == (1,)

    asyncio.run(cancelled())


def test_refusals_say_what_to_do(fleet: Relays) -> None:
    made = event("t", 0)
    with psycopg.connect(fleet.dsn) as conn:
        write(conn, made)
        with pytest.raises(OpenTransaction, match="nobody else sees its events"):
            published(conn, made, timeout=1)
        conn.commit()
        with pytest.raises(BadSettings, match="has no key"):
            published(conn, Event(topic="t", type="T"), timeout=1)
        with pytest.raises(BadSettings, match="timeout="):
            published(conn, made, timeout=-1)
        with pytest.raises(SchemaMissing, match="dovecote init outbox --schema elsewhere"):
            published(conn, made, timeout=1, schema="elsewhere")
        conn.read_only = True
        with pytest.raises(NotAllowed, match="primary server that may write"):
            published(conn, made, timeout=1)
    with pytest.raises(UnsupportedConnection, match="nobody can wait on"):
        published(object(), made, timeout=1)  # type: ignore[arg-type]


def test_a_writer_may_wait_and_a_role_without_rights_is_told_the_command(fleet: Relays) -> None:
    made = written(fleet.dsn, "t")
    with psycopg.connect(fleet.dsn, autocommit=True) as owner:
        owner.execute("CREATE ROLE published_caller LOGIN PASSWORD 'p'")
        dsn = make_conninfo(fleet.dsn, user="published_caller", password="p")  # noqa: S106  # of this test
        try:
            with pytest.raises(NotAllowed, match="--writer-role published_caller"):
                wait(dsn, made, 0)
            install(owner, roles=Roles(writers=["published_caller"]))
            assert isinstance(wait(dsn, made, 0), TimedOut)
        finally:
            owner.execute("DROP OWNED BY published_caller")
            owner.execute("DROP ROLE published_caller")


def test_every_relay_has_to_have_it(fleet: Relays, topic: MakeTopic) -> None:
    made = written(fleet.dsn, topic(1))
    fleet.active()
    assert isinstance(wait(fleet.dsn, made), Published)
    with psycopg.connect(fleet.dsn) as conn:
        conn.execute("SELECT outbox.confirm('another', '1:1:', NULL, 0)")
    until(lambda: isinstance(wait(fleet.dsn, made, 0), TimedOut), within=5, what="the other")


def _url(dsn: str, scheme: str) -> sqlalchemy.URL:
    parts = conninfo_to_dict(dsn)
    return sqlalchemy.URL.create(
        scheme,
        username=str(parts["user"]),
        password=str(parts["password"]),
        host=str(parts["host"]),
        port=int(str(parts["port"])),
        database=str(parts["dbname"]),
    )
