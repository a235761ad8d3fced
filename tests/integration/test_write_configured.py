"""Our statement is the same whatever an application has configured on its connection."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg import AsyncConnection
from psycopg.adapt import Dumper, Loader
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import JsonbDumper
from psycopg.types.string import StrDumper
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from dedup.inbox import schema as inbox_schema
from dedup.inbox.connections import Connections
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again
from outbox import Event, SchemaMissing, schema, write, write_async
from outbox.event import Limits
from outbox.producer.fallback import Fallback
from tests.support.fix_django import django_database
from tests.support.inboxes import DUPLICATE, INBOX
from tests.support.writers import address, url
from tests.support.written import stored

FULL = Event(
    topic="orders",
    type="OrderPlaced",
    source="/shop",
    key="Straße",
    value="10 € \\ ' \"",
    subject="",
    time=datetime(2013, 1, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=-5))),
    headers=[("a", b"\x00\xff"), ("a", None), ("NULL", ""), ("ü", '{"NULL"}')],
)
BARE = Event(topic="orders", type="OrderPlaced")
VOID = 2278  # its oid: the driver has no name for it
COLUMNS = (
    "id::text, topic, key, value, type, source, subject, time AT TIME ZONE 'UTC', content_type,"
    " header_names, header_values"
)
E1, E2 = Identity("/s", "e1"), Identity("/s", "e2")
LATER = Again(timedelta(seconds=90))

Configure = Callable[[Any], None]


class Upper(StrDumper):
    def dump(self, obj: str) -> bytes:
        return obj.upper().encode()


class EmptyIsNull(StrDumper):
    def dump(self, obj: str) -> Any:
        return super().dump(obj) if obj else None


class Compressed(Dumper):
    oid = psycopg.adapters.types["bytea"].oid

    def dump(self, obj: bytes) -> bytes:
        return b"\\x" + zlib.compress(obj).hex().encode()


class CompressedBinary(Compressed):
    format = psycopg.pq.Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return zlib.compress(obj)


class Zoneless(Dumper):
    oid = psycopg.adapters.types["timestamp"].oid

    def dump(self, obj: datetime) -> bytes:
        return obj.replace(tzinfo=None).isoformat(" ").encode()


class Words(Loader):
    def load(self, data: Any) -> str:
        return f"number {bytes(data).decode()}"


def failing(cursor: Any) -> Any:
    raise RuntimeError(cursor)


def dumping(kind: type, *dumpers: type[Dumper]) -> Configure:
    def configure(conn: Any) -> None:
        for dumper in dumpers:
            conn.adapters.register_dumper(kind, dumper)

    return configure


def loading_words(conn: Any) -> None:
    for kind in ("int4", "int8", "text", VOID):
        conn.adapters.register_loader(kind, Words)


def with_rows(factory: Any) -> Configure:
    def configure(conn: Any) -> None:
        conn.row_factory = factory

    return configure


CONFIGURED = {
    "list as jsonb": dumping(list, JsonbDumper),
    "str of the driver": dumping(str, StrDumper),
    "str in capitals": dumping(str, Upper),
    "empty str as NULL": dumping(str, EmptyIsNull),
    "bytes compressed": dumping(bytes, Compressed, CompressedBinary),
    "datetime without its zone": dumping(datetime, Zoneless),
    "int as text": dumping(int, type("Text", (StrDumper,), {"dump": lambda _, n: b"%d" % n})),
    "everything as jsonb": dumping(object, JsonbDumper),
    "numbers as words": loading_words,
    "rows as dictionaries": with_rows(dict_row),
    "rows that fail": with_rows(failing),
}


@pytest.fixture(params=CONFIGURED)
def configure(request: pytest.FixtureRequest) -> Configure:
    return CONFIGURED[request.param]


def expected(*events: Event) -> list[Any]:
    return [
        (
            event.id,
            event.topic,
            event.key_bytes(),
            event.value_bytes(),
            event.type,
            event.source,
            event.subject,
            event.time.astimezone(UTC).replace(tzinfo=None),
            event.media_type(),
            [name for name, _ in event.headers] or None,
            [None if value is None else bytes(value) for _, value in event.headers] or None,  # type: ignore[arg-type]  # normalised
        )
        for event in events
    ]


def found(dsn: str) -> list[Any]:
    return [(*row[:9], row[9] or None, row[10] or None) for row in stored(dsn, COLUMNS)]


def publish(conn: Any) -> None:
    write(conn, FULL)
    write(conn, BARE)
    write(conn, FULL, BARE, FULL)
    write(conn, BARE, BARE)


async def publish_async(conn: Any) -> None:
    await write_async(conn, FULL)
    await write_async(conn, BARE)
    await write_async(conn, FULL, BARE, FULL)
    await write_async(conn, BARE, BARE)


WRITTEN = expected(FULL, BARE, FULL, BARE, FULL, BARE, BARE)


def take(conn: Any) -> None:
    assert INBOX.take(conn, E1) is None
    assert INBOX.take(conn, E1) == DUPLICATE
    INBOX.again(conn, E1, LATER)
    assert INBOX.take(conn, E1) == LATER
    assert INBOX.take_many(conn, [E1, E2, E2]) == [LATER, None, INBOX.take(conn, E2)]


async def take_async(conn: Any) -> None:
    assert await INBOX.take_async(conn, E1) is None
    assert await INBOX.take_async(conn, E1) == DUPLICATE
    await INBOX.again_async(conn, E1, LATER)
    assert await INBOX.take_async(conn, E1) == LATER
    assert (await INBOX.take_many_async(conn, [E1, E2]))[:1] == [LATER]


def test_adapters_and_rows_of_a_connection_do_not_reach_our_statement(
    both: str, configure: Configure
) -> None:
    with psycopg.connect(both) as conn:
        configure(conn)
        publish(conn)
        take(conn)
    assert found(both) == WRITTEN


def test_nor_those_of_an_async_connection(both: str, configure: Configure) -> None:
    async def scenario() -> None:
        async with await AsyncConnection.connect(both) as conn:
            configure(conn)
            await publish_async(conn)
            await take_async(conn)

    asyncio.run(scenario())
    assert found(both) == WRITTEN


def test_nor_those_below_sqlalchemy(both: str, configure: Configure) -> None:
    engine = sqlalchemy.create_engine(url(both, "psycopg"), poolclass=NullPool)
    with engine.begin() as conn:
        conn.execution_options(stream_results=True)
        driver: Any = conn.connection.driver_connection
        configure(driver)
        before = driver.row_factory
        publish(conn)
        take(conn)
        assert driver.row_factory is before
    assert found(both) == WRITTEN


def test_nor_those_below_sqlalchemys_async_connection(both: str, configure: Configure) -> None:
    async def scenario() -> None:
        engine = create_async_engine(url(both, "psycopg"), poolclass=NullPool)
        async with engine.begin() as conn:
            configure((await conn.get_raw_connection()).driver_connection)
            await publish_async(conn)
            await take_async(conn)

    asyncio.run(scenario())
    assert found(both) == WRITTEN


@pytest.mark.parametrize("options", [{}, {"server_side_binding": True}], ids=["client", "server"])
def test_nor_those_below_django(dsn: str, configure: Configure, options: dict[str, Any]) -> None:
    with django_database(dsn, **options) as conn:
        conn.set_autocommit(False)
        configure(conn.connection)
        publish(conn)
        conn.commit()
        conn.connection.row_factory = tuple_row
    assert found(dsn) == WRITTEN


CODECS = ["text", "bytea", "uuid", "timestamptz", "int4", "json", "varchar"]


async def with_codecs(conn: Any) -> None:
    for name in CODECS:
        await conn.set_type_codec(
            name,
            schema="pg_catalog",
            encoder=lambda _: "of the application",
            decoder=lambda _: "of the application",
        )


def test_codecs_of_asyncpg_do_not_reach_our_statement(dsn: str) -> None:
    async def scenario() -> None:
        conn = await asyncpg.connect(address(dsn))
        await with_codecs(conn)
        async with conn.transaction():
            await conn.execute("SET array_nulls = off")
            await publish_async(conn)
        await conn.close()

    asyncio.run(scenario())
    assert found(dsn) == WRITTEN


def test_nor_do_codecs_of_asyncpg_below_sqlalchemy(dsn: str) -> None:
    async def scenario() -> None:
        engine = create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool)
        async with engine.begin() as conn:
            await with_codecs((await conn.get_raw_connection()).driver_connection)
            await publish_async(conn)

    asyncio.run(scenario())
    assert found(dsn) == WRITTEN


@pytest.fixture
def everywhere(configure: Configure) -> Iterator[None]:
    """Configured for all connections that are made from now on."""

    class Driver:
        adapters = psycopg.adapters

    before = psycopg.adapt.AdaptersMap(psycopg.adapters)
    configure(Driver)
    try:
        yield
    finally:
        for name in ("_dumpers", "_dumpers_by_oid", "_loaders"):
            setattr(psycopg.adapters, name, getattr(before, name))


@pytest.mark.usefixtures("everywhere")
def test_adapters_of_the_whole_process_do_not_reach_our_own_connections(both: str) -> None:
    producing = Fallback(both, "outbox", Limits())
    producing.write([FULL, BARE])
    assert producing.drained({b"k": producing.token()}) == []
    producing.close()
    given = Connections(both)
    with given.begin() as handling:
        take(handling)
    given.close()
    own = Connections(both, ours=True)
    with own.begin() as conn:
        assert conn.execute("SELECT %s::text[], 1", [["a"]]).fetchone() == (["a"], 1)
    own.close()


def test_an_installation_does_not_depend_on_the_connections_adapters(
    database: str, configure: Configure
) -> None:
    with psycopg.connect(database) as conn:
        configure(conn)
        for installing in (schema, inbox_schema):
            installing.install(conn)
            installing.install(conn)
            installing.require(conn)


@pytest.mark.parametrize("how", ["psycopg", "asyncpg"])
def test_what_a_trigger_misses_is_not_the_outbox(dsn: str, how: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM nowhere_to_be_found(); RETURN NEW; END'"
        )
        conn.execute("CREATE TRIGGER audit BEFORE INSERT ON outbox.events_0 FOR EACH ROW"
                     " EXECUTE FUNCTION audit()")  # fmt: skip
    try:
        with pytest.raises(Exception, match="nowhere_to_be_found") as raised:
            asyncio.run(_on(how, dsn))
        assert not isinstance(raised.value, SchemaMissing)
    finally:
        with psycopg.connect(dsn) as conn:
            conn.execute("DROP FUNCTION audit() CASCADE")


async def _on(how: str, dsn: str) -> None:
    if how == "psycopg":
        async with await AsyncConnection.connect(dsn) as conn:
            await write_async(conn, BARE)
    engine = create_async_engine(url(dsn, "asyncpg"), poolclass=NullPool)
    async with engine.begin() as within:
        await write_async(within, BARE)
