"""Committed events are read from the log once, in commit order, and nothing else is."""

import os
import re
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from dovecote.cli.main import app
from dovecote.devstack import Stack
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from outbox import Event, schema, write
from outbox.errors import DovecoteError
from outbox.schema import capture as outbox_capture
from outbox.schema.capture import prefix, use_wal
from relay.errors import Refused
from relay.postgres.capture.catalog import Look, look
from relay.postgres.capture.switching import Expected, SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.wal import Timing
from relay.rules.batch import Batch, Capture
from relay.rules.places.progress import Cursor, LogPosition, Place, Progress, at
from relay.rules.server.leaves import TABLES
from tests import old_schemas
from tests.support.fix_stack import new_database
from tests.support.relaying import event, installed
from tests.support.waiting import patient, until

Make = Callable[[], str]
Fill = Callable[[psycopg.Connection, int, int], None]


@pytest.fixture
def dsn(database: str) -> str:
    """A database whose outbox is written to the log."""
    use_wal(installed(database), "outbox")
    return database


@contextmanager
def capturing(
    dsn: str, *, rows: int = 10_000, size: int = 16_000_000, heartbeat: float = 60.0
) -> Iterator[SwitchingCapture]:
    timing = Timing(lease=10.0, heartbeat=heartbeat)
    with closing(
        SwitchingCapture(dsn, "outbox", batch_rows=rows, batch_bytes=size, timing=timing)
    ) as capture:
        yield capture


def progress_at(place: Place, capture: Capture) -> Progress:
    """Return the progress record as the next relay finds it."""
    return Progress.decode(at("shop", capture.origin(), place).encode())


def read(
    capture: Capture, place: Place, count: int, *, confirm: bool = True
) -> tuple[list[int], Place]:
    """Return the numbers of the next `count` events, and the capture's place then."""
    found: list[int] = []

    def enough() -> bool:
        nonlocal place
        for batch in capture.batches(place):
            place = batch.cursor
            found.extend(int(row[5]) for row in batch.rows)
            if confirm and (batch.rows or batch.keep):
                capture.confirm(place)
        return len(found) >= count

    until(enough, within=20, what=f"{count} events")
    return found, place


def read_on(capture: Capture, place: Place, dsn: str) -> tuple[list[int], Place]:
    """Return everything that was committed so far, up to an event that is committed now."""
    append(dsn, -1)
    found: list[int] = []
    while -1 not in found:
        more, place = read(capture, place, 1)
        found += more
    return [number for number in found if number != -1], place


def append(dsn: str, *numbers: int) -> None:
    with psycopg.connect(dsn) as conn:
        write_numbers(conn, *numbers)


def write_numbers(conn: psycopg.Connection, *numbers: int) -> None:
    write(conn, *[event("t", number) for number in numbers])


def append_range(conn: psycopg.Connection, first: int, count: int) -> None:
    conn.execute(
        "SELECT outbox.append('t', 'key', n::text::bytea, 'T')"
        " FROM generate_series(%s::int, %s::int) AS n",
        [first, first + count - 1],
    )


def seen_by(dsn: str) -> Look:
    with psycopg.connect(dsn) as conn:
        return look(conn, "outbox")


def secret(dsn: str) -> str:
    with psycopg.connect(dsn) as conn:
        return prefix(conn, "outbox")


def confirmed(dsn: str) -> int:
    slot = seen_by(dsn).slot
    return slot.confirmed or 0 if slot else 0


def test_transactions_come_in_the_order_of_their_commits(dsn: str) -> None:
    with (
        capturing(dsn) as capture,
        psycopg.connect(dsn) as slow,
        psycopg.connect(dsn) as fast,
    ):
        write_numbers(slow, 1, 2)
        write_numbers(fast, 3)
        write_numbers(slow, 4)
        fast.commit()
        write_numbers(fast, 5)
        slow.commit()
        fast.commit()
        found, place = read(capture, capture.resume(None), 5)
        assert found == [3, 1, 2, 4, 5]
        assert read_on(capture, place, dsn)[0] == []


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """Use up all descriptors that select() can take, and yield the number of the last one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_048:
        pytest.skip(f"no more than {hard} descriptors are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < 2_048 else soft, hard))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        last = 0
        while last < 1_024:
            last = os.open(os.devnull, os.O_RDONLY)
            opened.callback(os.close, last)
        yield last


def test_a_process_with_many_descriptors_reads_the_log(dsn: str, many_descriptors: int) -> None:
    with capturing(dsn) as capture:
        place = capture.resume(None)
        append(dsn, 1)
        found, place = read(capture, place, 1)
        capture.wait(0.01)
        capture.interrupt()
        capture.wait(patient(10))
        append(dsn, 2)
        assert (found, read(capture, place, 1)[0]) == ([1], [2])
    assert many_descriptors >= 1_024


def test_what_was_rolled_back_is_never_seen(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        write_numbers(conn, 1)
        conn.rollback()
        write_numbers(conn, 2)
        with conn.transaction(force_rollback=True):
            write_numbers(conn, 3)
        with conn.transaction():
            write_numbers(conn, 4)
            with conn.transaction(force_rollback=True):
                write_numbers(conn, 5)
        conn.commit()
        assert read_on(capture, capture.resume(None), dsn)[0] == [2, 4]


def test_messages_of_others_and_those_that_are_not_committed_are_ignored(dsn: str) -> None:
    with capturing(dsn) as capture, psycopg.connect(dsn) as conn:
        own = secret(dsn)
        payload = "outbox.encoded('t', NULL, '666', 'T', gen_random_uuid(), 's', NULL, now(), NULL"
        payload += ", NULL, NULL)"
        for transactional, said in [(True, "dovecote/"), (True, "x"), (False, own)]:
            conn.execute(
                f"SELECT pg_logical_emit_message(%s, %s, {payload})".encode(),
                [transactional, said],
            )
        conn.commit()
        conn.execute(f"SELECT pg_logical_emit_message(false, %s, {payload})".encode(), [own])
        conn.rollback()
        write_numbers(conn, 1)
        conn.commit()
        assert read_on(capture, capture.resume(None), dsn)[0] == [1]


MODE = (
    "CREATE OR REPLACE FUNCTION outbox.writes_to_wal() RETURNS boolean LANGUAGE sql"
    " IMMUTABLE AS 'SELECT %'"
)

EVENTS = [
    Event(topic="t.1", type="Tüp", source="/söurce", key=b"\xff\0k", value=b"\0\xff", subject="é"),
    Event(topic="t", type="T", key="k"),
    Event(topic="t", type="T", value=""),
    Event(topic="t", type="T", value={"a": "ü"}, headers=[("ä", b"\xff"), ("n", None), ("ä", "")]),
    Event(topic="t", type="T", key="", value="x" * 100_000),
    Event(topic="t", type="T", traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
def test_an_event_is_the_same_by_message_by_insert_and_in_the_table(
    database: str, encoding: str, *, together: bool
) -> None:
    installed(database)
    calls = [EVENTS] if together else [[made] for made in EVENTS]

    def write_all() -> None:
        with psycopg.connect(database) as conn:
            conn.execute(f"SET client_encoding = '{encoding}'".encode())
            for call in calls:
                write(conn, *call)

    write_all()
    with closing(TableCapture(database, "outbox", batch_rows=100, batch_bytes=10**7)) as table:
        in_table = [row[1:] for batch in table.batches(Cursor()) for row in batch.rows]
    with psycopg.connect(database) as conn:
        conn.execute("TRUNCATE outbox.events")
    use_wal(database, "outbox")
    write_all()
    with psycopg.connect(database) as conn:
        conn.execute(MODE.replace("%", "false").encode())
    write_all()
    rows: list[tuple[Any, ...]] = []
    with capturing(database) as capture:
        place = capture.resume(None)

        def enough() -> bool:
            nonlocal place
            for batch in capture.batches(place):
                place = batch.cursor
                rows.extend(row[1:] for row in batch.rows)
            return len(rows) >= 2 * len(EVENTS)

        until(enough, within=20, what="all events")
    assert len(in_table) == len(EVENTS)
    assert [without_empty(row) for row in rows] == [without_empty(row) for row in in_table] * 2


def without_empty(row: tuple[Any, ...]) -> list[Any]:
    """Return a row with missing headers written in only one way."""
    return [None if value == [] else value for value in row]


@pytest.mark.parametrize(
    "call",
    [
        "append('t', NULL, NULL, 'T', NULL::uuid)",
        "append_many('{t}', '{k}', '{v}', '{T}', '{NULL}', '{s}', '{NULL}', '{now}', '{NULL}')",
    ],
)
def test_an_event_without_an_id_is_refused_and_not_silently_dropped(dsn: str, call: str) -> None:
    with psycopg.connect(dsn) as conn, pytest.raises(psycopg.errors.NotNullViolation):
        conn.execute(f"SELECT outbox.{call}".encode())


def test_the_events_of_a_call_share_messages_of_some_size(dsn: str) -> None:
    sizes = [*[10] * 200, 300_000, 10, 10, 70_000, 70_000, 10]
    append(dsn, 1)
    with psycopg.connect(dsn) as conn:
        write(conn, *[Event(topic="t", type="T", value="x" * size) for size in sizes])
        conn.commit()
        own = outbox_capture.installed(conn, "outbox")
        found = conn.execute(
            "SELECT length(data) / 1000 FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')"
            " WHERE get_byte(data, 0) = ascii('M')",
            [own.slot, own.publication],
        ).fetchall()
    assert [above(thousands, 300, 140, 70) for (thousands,) in found] == [0, 300, 70, 70, 0]


def test_calls_with_no_events_with_large_ones_and_with_small_ones_come_in_their_order(
    dsn: str,
) -> None:
    lists = ", ".join(["'{}'"] * 9)
    with psycopg.connect(dsn) as conn:
        for headers in ("", ", NULL, NULL, NULL", ", '{}', '{}', '{}'"):
            conn.execute(f"SELECT outbox.append_many({lists}{headers})".encode())
        write(conn, *[Event(topic="t", type="T", value=f"{n:>20000}") for n in range(3)])
        write(conn, *[Event(topic="t", type="T", value=f"{n:>9}") for n in (3, 4)])
    with capturing(dsn) as capture:
        assert read_on(capture, capture.resume(None), dsn)[0] == [0, 1, 2, 3, 4]


def above(size: int, *bounds: int) -> int:
    """Return the first of these bounds that is not above `size`; 0 if there is none."""
    return next((bound for bound in bounds if size >= bound), 0)


def by_one_call(conn: psycopg.Connection, first: int, count: int) -> None:
    write_numbers(conn, *range(first, first + count))


@pytest.mark.parametrize("fill", [append_range, by_one_call])
def test_a_large_transaction_goes_on_in_the_middle_after_a_restart(dsn: str, fill: Fill) -> None:
    with psycopg.connect(dsn) as conn:
        fill(conn, 0, 1_000)
    append(dsn, 1_000, 1_001)
    found: list[int] = []
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 0)
    restarts = 0
    while len(found) < 1_002:
        with capturing(dsn, rows=70) as capture:
            place = capture.resume(progress_at(place, capture))
            batch = first_with_rows(capture, place)
            found.extend(int(row[5]) for row in batch.rows)
            place = batch.cursor
            capture.confirm(place)
        restarts += 1
    assert found == list(range(1_002))
    assert restarts >= 1_002 // 70
    assert isinstance(place, LogPosition)


def first_with_rows(capture: SwitchingCapture, place: Place) -> Batch:
    """Return the first batch after `place`, and read no further."""
    found: list[Batch] = []

    def one() -> bool:
        nonlocal place
        for batch in capture.batches(place):
            place = batch.cursor
            if batch.rows:
                found.append(batch)
                return True
        return False

    until(one, within=20, what="a batch")
    return found[0]


@pytest.mark.parametrize("fill", [append_range, by_one_call])
def test_batches_are_bounded_in_rows_and_bytes(dsn: str, fill: Fill) -> None:
    with psycopg.connect(dsn) as conn:
        fill(conn, 0, 500)
        conn.execute(
            "SELECT outbox.append('t', NULL, convert_to(repeat('7', 10000), 'UTF8'), 'T')"
            " FROM generate_series(1, 20)"
        )
    batches = []
    with capturing(dsn, rows=100, size=50_000) as capture:
        place = capture.resume(None)

        def enough() -> bool:
            nonlocal place
            for batch in capture.batches(place):
                place = batch.cursor
                batches.append(batch)
            return sum(len(batch.rows) for batch in batches) >= 520

        until(enough, within=20, what="all events")
    assert max(len(batch.rows) for batch in batches) == 100
    assert max(batch.size for batch in batches) < 61_000


def test_only_what_is_in_committed_progress_is_confirmed(dsn: str) -> None:
    before = confirmed(dsn)
    with capturing(dsn) as capture:
        append(dsn, 1, 2)
        found, place = read(capture, capture.resume(None), 2, confirm=False)
        assert found == [1, 2]
        # The server has heard from us since, and more than once.
        for number in range(3):
            append(dsn, number)
            _, place = read(capture, place, 1, confirm=False)
            capture.stay()
        assert confirmed(dsn) == before
    with capturing(dsn) as capture:
        found, place = read(capture, capture.resume(None), 5)
        assert found == [1, 2, 0, 1, 2]
        assert isinstance(place, LogPosition)
        until(said(capture, place, dsn, place.lsn), within=10, what="the confirmation")


def said(capture: SwitchingCapture, place: Place, dsn: str, lsn: int) -> Callable[[], bool]:
    """
    Return a function that keeps the stream going and tells whether the slot is confirmed to `lsn`.
    """

    def confirmed_so_far() -> bool:
        for _ in capture.batches(place):
            pass
        return confirmed(dsn) >= lsn

    return confirmed_so_far


def test_the_slot_of_an_idle_outbox_moves_on(dsn: str, stack: Stack) -> None:
    with (
        capturing(dsn, heartbeat=0.05) as capture,
        new_database(stack) as elsewhere,
        psycopg.connect(elsewhere, autocommit=True) as conn,
    ):
        place = capture.resume(None)
        conn.execute("CREATE TABLE busy (t text)")
        conn.execute("INSERT INTO busy SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
        end, durable = seen_by(dsn).end, confirmed(dsn)

        def moved() -> bool:
            nonlocal place, durable
            for batch in capture.batches(place):
                place = batch.cursor
                assert isinstance(place, LogPosition)
                # In the relay's order: progress first.
                assert confirmed(dsn) <= durable
                if batch.keep:
                    durable = place.lsn
                    capture.confirm(place)
            return confirmed(dsn) >= end

        until(moved, within=20, what="a slot that moves on")


def test_rows_from_before_the_slot_are_published_first(database: str) -> None:
    dsn = installed(database)
    append(dsn, 1, 2)
    with psycopg.connect(dsn) as late:
        write_numbers(late, 3)
        late.rollback()
    use_wal(dsn, "outbox")
    append(dsn, 4)
    with capturing(dsn) as capture:
        found, place = read(capture, capture.resume(None), 3)
        assert found == [1, 2, 4]
        assert isinstance(place, LogPosition)
        # The next active relay goes on in the log.
        append(dsn, 5)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress_at(place, capture)), 1)[0] == [5]


def test_a_relay_of_the_table_that_had_gone_on_doubles_nothing(database: str) -> None:
    dsn = installed(database)
    append(dsn, 1, 2)
    use_wal(dsn, "outbox")
    with psycopg.connect(dsn) as conn:
        # As it was when the slot was just made: writers did not know of it yet.
        conn.execute("UPDATE outbox.reading SET state = 'table'")
        for number in (3, 4, 5):
            conn.execute(
                'INSERT INTO outbox.events ("time", id, topic, type, source, value)'
                " VALUES (now(), gen_random_uuid(), 't', 'T', 's', %s)",
                [str(number).encode()],
            )
            conn.commit()
    with closing(TableCapture(dsn, "outbox", batch_rows=2, batch_bytes=10**6)) as table:
        old: Place = Cursor()
        *_, last = table.batches(old)
        old = last.cursor
        progress = Progress.decode(at("shop", table.origin(), old).encode())
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE outbox.reading SET state = 'wal'")
    append(dsn, 6)
    with capturing(dsn) as capture:
        found, _ = read_on(capture, capture.resume(progress), dsn)
        assert found == [6]


def test_a_publication_from_before_there_were_leaves_gets_them(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(old_schemas.script(3).encode())
        use_wal(database, "outbox")
        schema.install(conn)
        published = conn.execute("SELECT tablename FROM pg_publication_tables").fetchall()
        assert sorted(name for (name,) in published) == sorted(TABLES)
        append(database, 1)
        conn.execute(MODE.replace("%", "false").encode())
        # If there is no leaf with that number, rows go into the parent.
        for leaf in range(len(TABLES)):
            conn.execute("SELECT outbox.write_to_leaf(%s)", [leaf])
            append(database, leaf + 2)
        rows = conn.execute("SELECT tableoid::regclass::text FROM outbox.events").fetchall()
        assert len(set(rows)) == len(TABLES)
        with capturing(database) as capture:
            assert read(capture, capture.resume(None), 6)[0] == [1, 2, 3, 4, 5, 6]


OF_A_DUMP = (
    'INSERT INTO outbox.events (xid, id, "time", topic, type, source)'
    " VALUES ('9000000000', gen_random_uuid(), now(), 't', 'T', '/s')"
)


@pytest.mark.parametrize("to", ["wal", "table"])
def test_the_capture_is_not_changed_while_rows_of_a_dump_wait(database: str, to: str) -> None:
    changes: dict[str, Callable[[str, str], object]] = {
        "wal": use_wal,
        "table": outbox_capture.use_table,
    }
    change = changes[to]
    installed(database)
    if to == "table":
        use_wal(database, "outbox")
    with psycopg.connect(database) as conn:
        conn.execute(OF_A_DUMP)
        conn.commit()
        before = look(conn, "outbox").state
        with pytest.raises(DovecoteError, match=r"9000000000.*the capture was not chan") as said:
            change(database, "outbox")
        assert look(conn, "outbox").state == before
        conn.rollback()
        (remedy,) = re.findall("`(UPDATE .*)`", str(said.value))
        conn.execute(remedy.encode())
        conn.commit()
        change(database, "outbox")
        assert look(conn, "outbox").state != before


def test_a_relay_in_the_log_is_not_kept_out_by_rows_that_the_log_had(dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn, event("t", 1))
        conn.commit()
        with capturing(dsn) as capture:
            _, place = read(capture, capture.resume(None), 1)
            kept = progress_at(place, capture)
        conn.execute(OF_A_DUMP)
        conn.commit()
        with capturing(dsn) as capture:
            assert capture.resume(kept) == place


def test_a_missing_slot_is_refused_until_the_gap_is_accepted(dsn: str) -> None:
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        progress = progress_at(place, capture)
    append(dsn, 2)
    drop_slot(dsn)
    with (
        capturing(dsn) as capture,
        pytest.raises(
            Refused, match=r"is missing.*dovecote init outbox --capture wal --accept-gap"
        ),
    ):
        capture.resume(progress)
    with pytest.raises(DovecoteError, match=r"is missing.*--accept-gap"):
        use_wal(dsn, "outbox")
    use_wal(dsn, "outbox", accept_gap=True)
    append(dsn, 3)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress), 1)[0] == [3]


def drop_slot(dsn: str) -> None:
    name = seen_by(dsn).installed.slot
    with psycopg.connect(dsn, autocommit=True) as conn:

        def dropped() -> bool:
            try:
                conn.execute("SELECT pg_drop_replication_slot(%s)", [name])
            except psycopg.errors.ObjectInUse:
                return False  # the session of a moment ago
            return True

        until(dropped, within=10, what="the slot dropped")


def test_a_slot_made_anew_behind_our_back_is_refused(dsn: str) -> None:
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        progress = progress_at(place, capture)
    append(dsn, 2)
    drop_slot(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        name = seen_by(dsn).installed.slot
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    with capturing(dsn) as capture:
        for found in (progress, None):
            with pytest.raises(Refused, match=r"begins at|was read up to"):
                capture.resume(found)
    use_wal(dsn, "outbox", accept_gap=True)
    append(dsn, 3)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress), 1)[0] == [3]


def test_a_slot_without_its_progress_is_refused(dsn: str) -> None:
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        assert isinstance(place, LogPosition)
        until(said(capture, place, dsn, place.lsn), within=10, what="the confirmation")
        with pytest.raises(Refused, match=r"was read up to .*, but there is no progress"):
            capture.resume(None)


def test_a_slot_of_another_database_is_refused(dsn: str, stack: Stack) -> None:
    drop_slot(dsn)
    name = seen_by(dsn).installed.slot
    with new_database(stack) as other:
        with psycopg.connect(other, autocommit=True) as conn:
            conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
        with (
            capturing(dsn) as capture,
            pytest.raises(Refused, match="is another one: plugin pgoutput, database test_"),
        ):
            capture.resume(None)


def test_a_relay_that_is_to_read_one_capture_reads_no_other(database: str) -> None:
    installed(database)
    with closing(expecting(database, "wal")) as capture:
        with pytest.raises(Refused, match=r"are in the table.*dovecote init outbox --capture wal"):
            capture.resume(None)
        use_wal(database, "outbox")
        assert capture.resume(None) == Cursor()
    with (
        closing(expecting(database, "table")) as capture,
        pytest.raises(Refused, match=r'are in the write-ahead log.*set `capture = "auto"`'),
    ):
        capture.resume(None)


def expecting(dsn: str, expected: Expected) -> SwitchingCapture:
    timing = Timing(10, 10)
    return SwitchingCapture(
        dsn, "outbox", batch_rows=1, batch_bytes=1, timing=timing, expected=expected
    )


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A Postgres of the test's own, which soon gives slots up."""
    folder = temporary_directory(server_user())
    settings = {"max_slot_wal_keep_size": "2MB", "wal_keep_size": "0", "max_wal_size": "32MB"}
    with Postgres(folder, fsync=False, temporary=True, settings=settings) as server:
        with psycopg.connect(server.dsn) as conn:
            schema.install(conn)
        yield server


def test_an_invalidated_slot_is_refused_until_the_gap_is_accepted(own_server: Postgres) -> None:
    dsn = own_server.dsn
    use_wal(dsn, "outbox")
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        progress = progress_at(place, capture)
    with psycopg.connect(dsn, autocommit=True) as conn:

        def lost() -> bool:
            conn.execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
            conn.execute("SELECT pg_switch_wal()")
            conn.execute("CHECKPOINT")
            slot = seen_by(dsn).slot
            return slot is not None and slot.is_lost

        until(lost, within=30, what="an invalidated slot")
    with (
        capturing(dsn) as capture,
        pytest.raises(Refused, match=r"was invalidated .*--accept-gap"),
    ):
        capture.resume(progress)
    use_wal(dsn, "outbox", accept_gap=True)
    append(dsn, 2)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(progress), 1)[0] == [2]


def test_it_goes_on_after_a_promotion_that_lost_nothing(own_server: Postgres) -> None:
    dsn = own_server.dsn
    use_wal(dsn, "outbox")
    append(dsn, 1)
    with capturing(dsn) as capture:
        _, place = read(capture, capture.resume(None), 1)
        progress = progress_at(place, capture)
    assert isinstance(place, LogPosition)
    own_server.stop()
    own_server.directory.joinpath("data", "standby.signal").touch()
    own_server.start()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_promote()")
    append(dsn, 2)
    with capturing(dsn) as capture:
        assert capture.origin().timeline == progress.timeline + 1
        found, _ = read(capture, capture.resume(progress), 1)
        assert found == [2]


def test_a_server_without_logical_decoding_is_named() -> None:
    folder = temporary_directory(server_user())
    with Postgres(
        folder, fsync=False, temporary=True, settings={"wal_level": "replica"}
    ) as server:
        dsn = installed(server.dsn)
        with pytest.raises(DovecoteError, match="wal_level = replica: set it to logical"):
            use_wal(dsn, "outbox")
        append(dsn, 1)


def test_a_writer_can_neither_read_the_prefix_nor_forge_an_event(dsn: str) -> None:
    role = "writer_to_the_log"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        schema.install(conn, roles=schema.Roles(writers=[role]))
    own = psycopg.conninfo.make_conninfo(dsn, user=role, password="x")  # noqa: S106  # of a moment
    try:
        append(own, 1)
        with psycopg.connect(own, autocommit=True) as conn:
            for query in (
                "SELECT prefix FROM outbox.capture",
                "SELECT pg_logical_slot_peek_binary_changes('x', NULL, NULL)",
                MODE.replace("%", "false"),
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(query.encode())
            shown = conn.execute("SELECT prosrc FROM pg_proc WHERE proname = 'append'").fetchall()
        assert secret(dsn) not in str(shown)
        with capturing(dsn) as capture:
            assert read(capture, capture.resume(None), 1)[0] == [1]
        assert secret(dsn).encode() not in plans(own)
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(f"DROP OWNED BY {role}".encode())
            conn.execute(f"DROP ROLE {role}".encode())


def test_how_a_session_reads_backslashes_changes_nothing_of_an_event(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET standard_conforming_strings = off")
        with conn.transaction():
            write_numbers(conn, 1)
        with conn.transaction():
            write_numbers(conn, 2, 3)
        assert conn.execute(
            "SELECT outbox.drained(ARRAY[pg_current_xact_id()], ARRAY[NULL::bytea])"
        ).fetchone() == ([False],)
        assert conn.execute("SELECT outbox.parked_lanes(1)").fetchone() == ([],)
    with capturing(dsn) as capture:
        assert read(capture, capture.resume(None), 3)[0] == [1, 2, 3]


def plans(dsn: str) -> bytes:
    """Return the constants that Postgres shows a session in its plans."""
    shown: list[str] = []
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.add_notice_handler(lambda notice: shown.append(notice.message_detail or ""))
        conn.execute("SET client_min_messages = log")
        conn.execute("SET debug_pretty_print = off")  # it breaks lines within numbers
        for kind in ("parse", "rewritten", "plan"):
            conn.execute(f"SET debug_print_{kind} = on".encode())
        conn.execute("SET plan_cache_mode = force_custom_plan")
        for _ in range(8):
            conn.execute("SELECT outbox.append('seen', NULL, 'v', 'T')")
            with conn.transaction():
                write_numbers(conn, 1, 2)
    constants = re.findall(r"\[((?:\s+-?\d+)+)\s+\]", "".join(shown))
    found = b"|".join(bytes(int(byte) % 256 for byte in each.split()) for each in constants)
    assert b"seen" in found
    return found


def test_a_relay_reads_the_log_with_the_rights_that_it_is_granted(database: str) -> None:
    installed(database)
    role = "relay_of_the_log"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'".encode())
        own = psycopg.conninfo.make_conninfo(database, user=role, password="x")  # noqa: S106  # of a moment
        try:
            schema.install(conn, roles=schema.Roles(relays=[role]))
            use_wal(database, "outbox")
            append(database, 1)
            with capturing(own) as capture:
                assert read(capture, capture.resume(None), 1)[0] == [1]
        finally:
            conn.execute(f"DROP OWNED BY {role}".encode())
            conn.execute(f"DROP ROLE {role}".encode())


def test_a_role_that_cannot_follow_the_log_is_named_and_its_relay_refused(database: str) -> None:
    installed(database)
    use_wal(database, "outbox")
    role = "relay_without_replication"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'".encode())
        own = psycopg.conninfo.make_conninfo(database, user=role, password="x")  # noqa: S106  # of a moment
        try:
            given = ["init", "outbox", "--dsn", database, "--relay-role", role]
            assert CliRunner().invoke(app, given).exit_code == 0
            conn.execute(f"ALTER ROLE {role} NOREPLICATION".encode())
            for more in ([], ["--capture", "wal"]):
                failed = CliRunner().invoke(app, [*given, *more])
                assert f'ALTER ROLE "{role}" REPLICATION' in str(failed.exception)
            append(database, 1)
            with (
                capturing(own) as capture,
                pytest.raises(Refused, match=f'`ALTER ROLE "{role}" REPLICATION`'),
            ):
                read(capture, capture.resume(None), 1)
            outbox_capture.use_table(database, "outbox")
            with pytest.raises(DovecoteError, match="the capture was not changed"):
                use_wal(database, "outbox")
            assert outbox_capture.installed(conn, "outbox").state == "leaving"
        finally:
            drop_slot(database)
            conn.execute(f"DROP OWNED BY {role}".encode())
            conn.execute(f"DROP ROLE {role}".encode())


def test_a_role_without_replication_is_told_so(database: str) -> None:
    role = "owner_of_an_outbox"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        conn.execute(f'GRANT CREATE ON DATABASE "{conn.info.dbname}" TO {role}'.encode())
    own = psycopg.conninfo.make_conninfo(database, user=role, password="x")  # noqa: S106  # of a moment
    try:
        with psycopg.connect(own) as conn:
            schema.install(conn)
        with pytest.raises(DovecoteError, match=f'ALTER ROLE "{role}" REPLICATION'):
            use_wal(own, "outbox")
        append(own, 1)
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(f"ALTER ROLE {role} REPLICATION".encode())
        use_wal(own, "outbox")
        append(own, 2)
        with capturing(own) as capture:
            assert read(capture, capture.resume(None), 2)[0] == [1, 2]
        drop_slot(database)
    finally:
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(f"DROP OWNED BY {role} CASCADE".encode())
            conn.execute(f"DROP ROLE {role}".encode())


def test_a_server_that_stands_still_is_not_called_idle(own_server: Postgres) -> None:
    use_wal(own_server.dsn, "outbox")
    append(own_server.dsn, 1)
    with capturing(own_server.dsn) as capture, ThreadPoolExecutor(1) as pool:
        _, place = read(capture, capture.resume(None), 1)
        assert isinstance(place, LogPosition)
        stream, _ = capture._log._open(place)
        own_server.pause()
        try:
            # Earlier messages of the server, perhaps a keepalive, are read first.
            *_, rest = capture._log.batches(place)
            place = rest.cursor
            assert isinstance(place, LogPosition)
            until(lambda: stream.silence() > 2, within=10, what="a silence")
            asked = pool.submit(list, capture._log.batches(place))
            assert wait([asked], timeout=1).not_done, "it was called idle"
            capture.interrupt()
            assert [len(batch.rows) for batch in asked.result(patient(10))] == [0]
        finally:
            own_server.resume()
        append(own_server.dsn, 2)
        assert read(capture, place, 1)[0] == [2]


@pytest.mark.parametrize("mode", ["table", "wal"])
def test_a_call_may_have_more_events_than_fit_a_number_of_bytes(database: str, mode: str) -> None:
    # 8,192 bytes for each are more than 2^31 in all.
    installed(database, mode)
    with psycopg.connect(database) as conn:
        conn.execute(
            "SELECT outbox.append_many(array_fill('t'::text, n), array_fill(NULL::bytea, n),"
            " array_fill('v'::bytea, n), array_fill('Made'::text, n),"
            " ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 270000)),"
            " array_fill('/tests'::text, n), array_fill(NULL::text, n),"
            " array_fill(now(), n), array_fill(NULL::text, n))"
            " FROM (SELECT ARRAY[270000]) AS s (n)"
        )
    with capturing(database) as capture:
        place, count = capture.resume(None), 0
        while count < 270_000:
            for batch in capture.batches(place):
                place, count = batch.cursor, count + len(batch.rows)
    assert count == 270_000
