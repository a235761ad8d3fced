"""Events commit, or vanish, with the caller's rows."""

import asyncio
import tempfile
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, ClientCursor, RawCursor, errors
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row
from psycopg.types.json import Jsonb

from outbox import (
    Event,
    InvalidEvent,
    Limits,
    NoTransaction,
    SchemaMissing,
    schema,
    write,
    write_async,
)
from tests.support.written import Conn, stored

ASKING = {"Sync", "Query", "Flush"}


def event(**fields: Any) -> Event:
    return Event(**{"topic": "orders", "type": "OrderPlaced", "source": "/shop", **fields})


def status(conn: Conn | AsyncConnection[Any]) -> TransactionStatus:
    return conn.info.transaction_status


def test_an_event_is_seen_when_the_caller_commits_and_not_before(conn: Conn, dsn: str) -> None:
    conn.execute("INSERT INTO orders VALUES (1)")
    write(conn, event(value=b"1"))
    assert stored(dsn) == []
    conn.commit()
    assert stored(dsn) == [b"1"]


def test_an_event_vanishes_with_a_rollback(conn: Conn, dsn: str) -> None:
    conn.execute("INSERT INTO orders VALUES (1)")
    write(conn, event(), event())
    conn.rollback()
    assert stored(dsn) == []


def test_an_event_vanishes_when_the_connection_does(conn: Conn, dsn: str) -> None:
    write(conn, event())
    conn.close()
    assert stored(dsn) == []


def test_an_event_follows_its_savepoint(conn: Conn, dsn: str) -> None:
    write(conn, event(value=b"outer"))
    with conn.transaction():
        write(conn, event(value=b"kept"))
        with conn.transaction(force_rollback=True):
            write(conn, event(value=b"undone"))
    conn.commit()
    assert stored(dsn) == [b"outer", b"kept"]


def test_writing_neither_begins_nor_commits_nor_rolls_back(conn: Conn) -> None:
    before = conn.execute("SELECT pg_current_xact_id()").fetchone()
    write(conn, event())
    write(conn, event(), event())
    assert conn.info.transaction_status is TransactionStatus.INTRANS
    assert conn.execute("SELECT pg_current_xact_id()").fetchone() == before


def test_writing_nothing_does_nothing(conn: Conn) -> None:
    write(conn)
    assert conn.info.transaction_status is TransactionStatus.IDLE


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_batch_is_one_round_trip(conn: Conn, count: int) -> None:
    events = [event(value=b"x" * 10, headers=[("n", str(n))]) for n in range(count)]
    conn.execute("SELECT 1")
    with tempfile.TemporaryFile("w+") as trace:
        conn.pgconn.trace(trace.fileno())
        write(conn, *events)
        conn.pgconn.untrace()
        trace.seek(0)
        messages = [line.rstrip("\n").split("\t") for line in trace]
    # The messages that ask the server to answer; everything before goes out with them.
    asked = [name for _, side, _, name, *_ in messages if side == "F" and name in ASKING]
    assert asked == ["Sync"]


def test_events_of_one_batch_keep_their_order(conn: Conn, dsn: str) -> None:
    write(conn, *[event(value=str(n)) for n in range(500)])
    write(conn, event(value="500"))
    write(conn, *[event(value=str(n)) for n in range(501, 700)])
    conn.commit()
    assert stored(dsn) == [str(n).encode() for n in range(700)]


def test_every_field_is_stored_as_it_was_given(conn: Conn, dsn: str) -> None:
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    full = event(
        key="Straße",
        value={"total": "10 €"},
        subject="order/1",
        time=datetime(2013, 1, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=-5))),
        headers=[("a", b"\x00\xff"), ("a", None), ("b", ""), ("ü", "ü")],
        traceparent=trace,
    )
    bare = event(source="dovecote")
    write(conn, full)
    write(conn, bare, full)
    conn.commit()
    columns = (
        "id::text, topic, key, value, type, source, subject, time AT TIME ZONE 'UTC',"
        " content_type, header_names, header_values"
    )
    names = ["traceparent", "a", "a", "b", "ü"]
    values = [trace.encode(), b"\x00\xff", None, b"", "ü".encode()]
    expected = (
        full.id, "orders", "Straße".encode(), '{"total":"10 €"}'.encode(), "OrderPlaced", "/shop",
        "order/1", datetime(2013, 1, 1, 17, 0, 0, 123456), "application/json", names, values,  # noqa: DTZ001  # in UTC, as asked for
    )  # fmt: skip
    first, middle, last = stored(dsn, columns)
    assert first == last == expected
    assert middle[2:4] == (None, None)
    assert middle[6] is None
    assert not middle[9]


def test_headers_of_a_batch_stay_with_their_events(conn: Conn, dsn: str) -> None:
    given = [[("a", b"1"), ("a", b"2")], [], [("b", None)], [], [("c", b"3")]]
    write(conn, *[event(headers=headers) for headers in given])
    conn.commit()
    found = stored(dsn, "header_names, header_values")
    assert [list(zip(names, values, strict=True)) for names, values in found] == given


@pytest.mark.parametrize(
    "bad",
    [
        {"value": float("nan")},
        {"value": "x" * 101},
        {"key": "x" * 11},
        {"headers": [("a", b"x" * 1001)]},
        {"id": "not-a-uuid"},
        {"subject": "\0"},
        {"topic": "__consumer_offsets"},
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    conn: Conn, dsn: str, bad: dict[str, Any]
) -> None:
    conn.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(InvalidEvent):
        write(conn, event(), event(**bad), event(), limits=Limits(key=10, value=100, headers=1000))
    assert conn.info.transaction_status is TransactionStatus.INTRANS
    write(conn, event(value=b"after"))
    conn.commit()
    assert stored(dsn) == [b"after"]


def test_autocommit_outside_a_transaction_is_refused(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        with pytest.raises(NoTransaction, match=r"with conn\.transaction"):
            write(conn, event())
        with conn.transaction():
            write(conn, event(value=b"in a block"))
        conn.execute("BEGIN")
        write(conn, event(value=b"in the caller's own"))
        conn.execute("COMMIT")
    assert stored(dsn) == [b"in a block", b"in the caller's own"]


def test_a_missing_outbox_says_how_to_install_it(database: str) -> None:
    with (
        psycopg.connect(database) as conn,
        pytest.raises(SchemaMissing, match=r"schema 'outbox' of 'test_.*dovecote init outbox"),
    ):
        write(conn, event())


def test_another_schema_is_named_in_the_error(conn: Conn) -> None:
    with pytest.raises(SchemaMissing, match="schema 'elsewhere'"):
        write(conn, event(), event(), schema="elsewhere")


def test_an_error_of_the_transaction_stays_the_callers(conn: Conn) -> None:
    with pytest.raises(errors.UndefinedTable):
        conn.execute("SELECT FROM nowhere")
    with pytest.raises(errors.InFailedSqlTransaction):
        write(conn, event())


@pytest.mark.parametrize(
    "options",
    [
        {"cursor_factory": ClientCursor},
        {"cursor_factory": RawCursor},
        {"row_factory": dict_row},
        {"row_factory": namedtuple_row},
        {"prepare_threshold": 0},
        {"prepare_threshold": None},
    ],
    ids=["client cursor", "raw cursor", "dict row", "namedtuple row", "always", "never"],
)
def test_any_kind_of_connection_will_do(dsn: str, options: dict[str, Any]) -> None:
    with psycopg.connect(dsn, **options) as conn:
        write(conn, event(value=b"1"))
        write(conn, event(value=b"2", key="k", headers=[("a", None)]), event(value=b"3"))
    assert stored(dsn) == [b"1", b"2", b"3"]


def test_a_pipeline_carries_events_too(conn: Conn, dsn: str) -> None:
    with conn.pipeline():
        conn.execute("INSERT INTO orders VALUES (1)")
        write(conn, event(value=b"1"))
        write(conn, event(value=b"2"), event(value=b"3"))
    conn.commit()
    assert stored(dsn) == [b"1", b"2", b"3"]


def test_a_callers_own_adapters_do_not_change_events(conn: Conn, dsn: str) -> None:
    conn.adapters.register_dumper(dict, type("D", (psycopg.types.json.JsonbDumper,), {}))
    conn.execute("SET search_path TO pg_temp")
    conn.execute("SET bytea_output TO escape")
    write(conn, event(value={"a": 1}), event(value=b"\x00"))
    conn.execute("SELECT %s", [Jsonb({})])
    conn.commit()
    assert stored(dsn) == [b'{"a":1}', b"\x00"]


def test_a_role_that_may_only_write_may_write(conn: Conn, dsn: str) -> None:
    conn.execute("CREATE ROLE writer_of_events")
    schema.install(conn, roles=schema.Roles(writers=["writer_of_events"]))
    conn.commit()
    try:
        conn.execute("SET ROLE writer_of_events")
        write(conn, event(value=b"1"), event(value=b"2"))
        with pytest.raises(errors.InsufficientPrivilege), conn.transaction():
            conn.execute("SELECT FROM outbox.events")
        conn.commit()
    finally:
        conn.rollback()
        conn.execute("RESET ROLE")
        conn.execute("DROP OWNED BY writer_of_events")
        conn.execute("DROP ROLE writer_of_events")
        conn.commit()
    assert stored(dsn) == [b"1", b"2"]


def test_a_transaction_with_events_commits_synchronously_whatever_the_session_says(
    conn: Conn,
) -> None:
    conn.execute("SET synchronous_commit = off")
    conn.commit()
    for events in ([event()], [event(), event()]):
        write(conn, *events)
        assert conn.execute("SHOW synchronous_commit").fetchone() == ("on",)
        conn.commit()
        assert conn.execute("SHOW synchronous_commit").fetchone() == ("off",)
    conn.execute("SET synchronous_commit = remote_write")
    write(conn, event())
    assert conn.execute("SHOW synchronous_commit").fetchone() == ("remote_write",)


def test_the_async_form_does_the_same(dsn: str) -> None:
    async def scenario() -> None:
        async with await AsyncConnection.connect(dsn) as conn:
            await write_async(conn)
            assert status(conn) is TransactionStatus.IDLE
            await write_async(conn, event(value=b"undone"))
            await conn.rollback()
            await write_async(conn, event(value=b"1"))
            await write_async(conn, event(value=b"2"), event(value=b"3"))
            assert status(conn) is TransactionStatus.INTRANS
            with pytest.raises(SchemaMissing, match="dovecote init outbox"):
                async with conn.transaction():
                    await write_async(conn, event(), schema="elsewhere")
            with pytest.raises(InvalidEvent):
                await write_async(conn, event(value={1}))
            await conn.commit()
            await conn.set_autocommit(True)
            with pytest.raises(NoTransaction):
                await write_async(conn, event())

    asyncio.run(scenario())
    assert stored(dsn) == [b"1", b"2", b"3"]
