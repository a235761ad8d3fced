"""Events are written alike on the connections of every library."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
import pytest

from outbox import Event, InvalidEvent, Limits, NotAllowed, NoTransaction, SchemaMissing
from tests.support.fix_stack import Servers
from tests.support.writers import LIBRARIES, Undo, Writer

pytestmark = pytest.mark.contract

Scenario: TypeAlias = Callable[[Writer], Awaitable[None]]
Run: TypeAlias = Callable[..., None]

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture(scope="module")
def stranger(stack: Servers) -> Iterator[str]:
    """A role without any rights."""
    name = f"stranger_{uuid4().hex[:12]}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name}".encode())
        yield name
        admin.execute(f"DROP ROLE {name}".encode())


@pytest.fixture(params=LIBRARIES)
def run(request: pytest.FixtureRequest, dsn: str) -> Run:
    """Run a scenario on a connection of one library."""
    library = LIBRARIES[request.param]

    def run(scenario: Scenario, *, autocommit: bool = False) -> None:
        async def opened() -> None:
            async with library.open(dsn, autocommit=autocommit) as writer:
                await scenario(writer)

        (library.run or asyncio.run)(opened())

    return run


def event(**fields: Any) -> Event:
    return Event(**{"topic": "orders", "type": "OrderPlaced", "source": "/shop", **fields})


def stored(dsn: str, columns: str = "value") -> list[Any]:
    """Return the rows that another session sees, in order of position."""
    with psycopg.connect(dsn) as other:
        query = f"SELECT {columns} FROM outbox.events ORDER BY position"  # noqa: S608  # our own
        rows = other.execute(query.encode())
        return [row[0] if len(row) == 1 else row for row in rows]


def test_an_event_is_seen_with_the_callers_rows_when_they_are_committed(
    run: Run, dsn: str
) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.ask("INSERT INTO orders VALUES (1)")
        await writer.write(event(value=b"1"))
        assert stored(dsn) == []
        await writer.commit()
        assert stored(dsn) == [b"1"]

    run(scenario)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT id FROM orders").fetchall() == [(1,)]


def test_a_write_that_is_the_first_of_its_transaction_is_committed_with_it(
    run: Run, dsn: str
) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.write(event(value=b"1"))
        await writer.commit()

    run(scenario)
    assert stored(dsn) == [b"1"]


def test_an_event_vanishes_with_a_rollback(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.ask("INSERT INTO orders VALUES (1)")
        await writer.write(event(), event())
        await writer.rollback()

    run(scenario)
    assert stored(dsn) == []


def test_an_event_vanishes_when_nobody_commits(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.write(event())

    run(scenario)
    assert stored(dsn) == []


def test_an_event_follows_its_savepoint(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.write(event(value=b"outer"))
        async with writer.savepoint():
            await writer.write(event(value=b"kept"))
        with pytest.raises(Undo):
            await undone(writer, event(value=b"undone"))
        await writer.commit()

    run(scenario)
    assert stored(dsn) == [b"outer", b"kept"]


async def undone(writer: Writer, *events: Event) -> None:
    async with writer.savepoint():
        await writer.write(*events)
        raise Undo


def test_writing_neither_begins_nor_commits_nor_rolls_back(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        before = await writer.ask("SELECT pg_current_xact_id()::text")
        await writer.write(event())
        await writer.write(event(), event())
        assert await writer.ask("SELECT pg_current_xact_id()::text") == before
        assert stored(dsn) == []

    run(scenario)


def test_writing_nothing_does_nothing(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.write()
        await writer.commit()

    run(scenario)
    assert stored(dsn) == []


def test_a_batch_keeps_its_order_and_is_one_statement(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.ask("SET LOCAL application_name TO 'one batch'")
        await writer.write(*[event(value=str(n)) for n in range(500)])
        # A statement of its own would have increased the command id.
        await writer.commit()

    run(scenario)
    assert stored(dsn) == [str(n).encode() for n in range(500)]
    assert len(set(stored(dsn, "cmin::text"))) == 1


def test_every_field_is_stored_as_it_was_given(run: Run, dsn: str) -> None:
    full = event(
        key="Straße %s :x $1",
        value={"total": "10 € % :name $2 \\"},
        subject="order/1",
        time=datetime(2013, 1, 1, 12, 0, 0, 123456, tzinfo=UTC),
        headers=[("a", b"\x00\xff"), ("a", None), ("b", ""), ("ü", "ü")],
        traceparent=TRACE,
    )
    bare = event()

    async def scenario(writer: Writer) -> None:
        await writer.write(full)
        await writer.write(bare, full)
        await writer.commit()

    run(scenario)
    columns = (
        "id::text, topic, key, value, type, source, subject, time AT TIME ZONE 'UTC',"
        " content_type, header_names, header_values"
    )
    first, middle, last = stored(dsn, columns)
    assert first == last
    assert first == (
        full.id,
        "orders",
        full.key_bytes(),
        full.value_bytes(),
        "OrderPlaced",
        "/shop",
        "order/1",
        full.time.replace(tzinfo=None),
        "application/json",
        ["traceparent", "a", "a", "b", "ü"],
        [TRACE.encode(), b"\x00\xff", None, b"", "ü".encode()],
    )
    assert middle[0] == bare.id
    assert middle[2:4] == (None, None)
    assert not middle[9]


@pytest.mark.parametrize("bad", [{"value": {1}}, {"key": "x" * 11}, {"id": "order-7"}], ids=str)
def test_a_bad_event_is_refused_before_anything_is_written(
    run: Run, dsn: str, bad: dict[str, Any]
) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.ask("INSERT INTO orders VALUES (1)")
        with pytest.raises(InvalidEvent):
            await writer.write(event(), event(**bad), limits=Limits(key=10))
        await writer.write(event(value=b"after"))
        await writer.commit()

    run(scenario)
    assert stored(dsn) == [b"after"]


def test_autocommit_outside_a_transaction_is_refused(run: Run, dsn: str) -> None:
    async def scenario(writer: Writer) -> None:
        with pytest.raises(NoTransaction, match="autocommit"):
            await writer.write(event())

    run(scenario, autocommit=True)
    assert stored(dsn) == []


def test_a_missing_outbox_says_how_to_install_it(run: Run) -> None:
    async def scenario(writer: Writer) -> None:
        for events in ([event()], [event(), event()]):
            with pytest.raises(
                SchemaMissing, match=r"in schema 'elsewhere' of .*dovecote init outbox"
            ):
                async with writer.savepoint():
                    await writer.write(*events, schema="elsewhere")

    run(scenario)


def test_a_role_that_may_not_write_is_told_what_it_lacks(run: Run, stranger: str) -> None:
    async def scenario(writer: Writer) -> None:
        await writer.ask(f"SET LOCAL ROLE {stranger}")
        with pytest.raises(
            NotAllowed, match=r"^permission denied for .*; run `dovecote init outbox --wri"
        ):
            await writer.write(event())

    run(scenario)


def test_an_error_of_the_transaction_stays_the_callers(run: Run) -> None:
    async def scenario(writer: Writer) -> None:
        with pytest.raises(Exception, match="nowhere"):
            await writer.ask("SELECT FROM nowhere")
        with pytest.raises(Exception, match="transaction is aborted"):
            await writer.write(event())

    run(scenario)
