"""Published rows are removed by whole leaves; nothing else is, and nobody waits for it."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo

from dovecote.devstack import Stack
from outbox import schema, write
from outbox.schema import capture
from relay.metrics import Metrics
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.table import TableCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.lease import try_acquire
from relay.postgres.retention import Retention
from relay.rules.places.progress import Cursor, Place
from relay.rules.server.leaves import Leaf
from tests import old_schemas
from tests.support.fix_stack import new_database
from tests.support.relaying import event, installed
from tests.support.waiting import patient, until

LEAF = 6_000
"""The number of rows that are worth a rotation."""


@dataclass
class Shop:
    """An outbox, the events read from it, and a relay's session that makes room in it."""

    dsn: str
    conn: Connection
    capture: SwitchingCapture | TableCapture
    schema: str = "outbox"
    name: str = "shop"
    keep: float = 0.0
    cursor: Place = field(default_factory=Cursor)
    found: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.name)
        self.retention = Retention(self.schema, self.name, self.metrics, keep=self.keep, every=0.0)
        self.retention.begin(self.conn, self.cursor)

    def publish(self, batches: int | None = None) -> None:
        """Read everything there is, as if the broker committed each batch."""
        for batch in islice(self.capture.batches(self.cursor), batches):
            self.found += [int(row[5]) for row in batch.rows]
            self.cursor = batch.cursor
            self.retention.confirmed(batch.cursor)

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.retention.beat(self.conn)

    def metric(self, name: str, **labels: str) -> float:
        labels = {"outbox": self.name, **labels}
        value = self.metrics.registry.get_sample_value(f"dovecote_relay_{name}", labels)
        assert value is not None, name
        return value

    def delayed(self, cause: str) -> bool:
        return self.metric("rotation_delayed_seconds", cause=cause) > 0


@contextmanager
def shop(
    dsn: str, *, name: str = "shop", schema_name: str = "outbox", keep: float = 0.0
) -> Iterator[Shop]:
    with (
        try_acquire(dsn, [hash(name)], 30) as lease,
        closing(TableCapture(dsn, schema_name, batch_rows=1000, batch_bytes=10**8)) as capture,
    ):
        assert lease is not None
        yield Shop(dsn, lease.conn, capture, schema_name, name, keep)


@pytest.fixture(scope="module")
def installation(stack: Stack) -> Iterator[str]:
    with new_database(stack) as database:
        yield installed(database)


@pytest.fixture
def dsn(installation: str) -> str:
    """A database with an outbox, as new."""
    with psycopg.connect(installation) as conn:
        conn.execute("TRUNCATE outbox.events, outbox.relays")
        conn.execute("SELECT outbox.write_to_leaf(0)")
    return installation


@pytest.fixture
def writer(dsn: str) -> Iterator[Connection]:
    with psycopg.connect(dsn) as conn:
        yield conn


def append(conn: Connection, first: int, count: int = LEAF, *, name: str = "outbox") -> None:
    query = (
        "SELECT {}.append('t', 'key', lpad(n::text, 20, '0')::bytea, 'T', content_type =>"
        " repeat('x', 200)) FROM generate_series(%s::int, %s::int) AS n"
    )
    conn.execute(
        sql.SQL(query).format(sql.Identifier(name)),
        [first, first + count - 1],
    )


def held(dsn: str, name: str = "outbox") -> dict[int, int]:
    """Return how many rows each leaf has, if it has any."""
    query = sql.SQL("SELECT tableoid::regclass::text, count(*) FROM {}.events GROUP BY 1")
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(query.format(sql.Identifier(name))).fetchall()
    return {int(table.rpartition("_")[2]) if "_" in table else -1: count for table, count in rows}


def test_published_rows_go_and_leave_no_dead_ones_behind(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay:
        for lap in range(6):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
        assert relay.found == list(range(6 * LEAF))
        assert held(dsn) == {}
        assert relay.metric("rotations_total") == 6
        assert relay.metric("rotated_bytes_total") > 6 * 1_000_000
        assert relay.metric("leaves") == 0
        assert relay.metric("last_rotation_timestamp_seconds") == pytest.approx(
            time.time(), abs=60
        )
        dead = writer.execute(
            "SELECT sum(pg_stat_get_dead_tuples(oid)), sum(pg_total_relation_size(oid))"
            " FROM pg_class WHERE relname ~ '^events(_[0-9])?$' AND relkind = 'r'"
            " AND relnamespace = 'outbox'::regnamespace"
        ).fetchone()
        assert dead is not None
        assert dead[0] == 0
        assert dead[1] < 300_000


def test_what_is_not_published_stays(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay:
        append(writer, 0)
        writer.commit()
        relay.beat(3)
        assert held(dsn) == {0: LEAF}
        assert relay.delayed("unpublished")
        relay.publish()
        append(writer, LEAF, 1)
        writer.commit()
        relay.beat()
        assert held(dsn) == {1: 1}
        assert not relay.delayed("unpublished")


def test_a_long_open_transaction_elsewhere_delays_nothing(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay, psycopg.connect(dsn) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("CREATE TEMP TABLE mine AS SELECT pg_current_xact_id()")
        for lap in range(5):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
            assert held(dsn) == {}
        assert relay.found == list(range(5 * LEAF))
        assert relay.metric("rotations_total") == 5


def test_an_open_writer_keeps_its_leaf_and_nothing_else(
    dsn: str,
    writer: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.postgres.retention._PATIENCE", 0.0)
    with shop(dsn) as relay, psycopg.connect(dsn) as late:
        append(late, 1_000_000, 1)
        append(writer, 0)
        writer.commit()
        relay.publish()
        relay.beat(3)
        assert held(dsn) == {0: LEAF}
        assert relay.delayed("locked")
        assert f"by session {late.info.backend_pid}, no name" in caplog.text
        for lap in range(1, 9):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
            # The others take turns without it.
            assert held(dsn) == {0: LEAF}
        # A low position, a leaf that was passed long ago, a transaction that commits only now.
        late.commit()
        relay.beat()
        assert held(dsn) == {0: LEAF + 1}
        assert relay.delayed("unpublished")
        relay.publish()
        assert relay.found == [*range(9 * LEAF), 1_000_000]
        relay.beat()
        assert held(dsn) == {}


def test_no_writer_waits_for_a_rotation_that_has_to_wait(dsn: str, writer: Connection) -> None:
    with shop(dsn) as relay, psycopg.connect(dsn) as dump, psycopg.connect(dsn) as late:
        append(late, -1, 1)
        append(writer, 0)
        writer.commit()
        relay.publish()
        # Like pg_dump, from its beginning to its end.
        dump.execute("LOCK TABLE outbox.events IN ACCESS SHARE MODE")
        relay.beat()
        enough = threading.Event()

        def rotate() -> None:
            while not enough.is_set():
                relay.beat()

        with ThreadPoolExecutor(1) as pool:
            rotating = pool.submit(rotate)
            worst = 0.0
            # One that goes on in the leaf that rotation wants to empty, and one that begins
            # elsewhere.
            for number in range(300):
                for conn, commit in ((late, False), (writer, True)):
                    began = time.monotonic()
                    write(conn, event("t", LEAF + number))
                    worst = max(worst, time.monotonic() - began)
                    if commit:
                        conn.commit()
            enough.set()
            rotating.result(patient(10))
        assert worst < patient(1)
        assert relay.delayed("locked")
        assert sum(held(dsn).values()) == LEAF + 300
        dump.rollback()
        late.rollback()
        relay.publish()
        relay.beat()
        assert -1 not in held(dsn)
        assert sum(held(dsn).values()) <= 300


def test_a_backlog_larger_than_the_ring_stays_and_goes_when_it_is_published(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as relay:
        for lap in range(7):
            append(writer, lap * LEAF)
            writer.commit()
            relay.beat(2)
        assert sum(held(dsn).values()) == 7 * LEAF
        assert len(held(dsn)) == 4
        relay.publish()
        assert relay.found == list(range(7 * LEAF))
        relay.beat(2)
        assert held(dsn) == {}


def test_within_a_window_that_is_under_way_only_what_is_passed_goes(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as relay:
        for lap in range(3):
            append(writer, lap * LEAF)
            writer.commit()
            relay.beat(2)
        assert held(dsn) == {0: LEAF, 1: LEAF, 2: LEAF}
        relay.publish(batches=7)
        assert isinstance(relay.cursor, Cursor)
        assert relay.cursor.until is not None
        relay.beat()
        assert held(dsn) == {1: LEAF, 2: LEAF}
        relay.publish(batches=4)
        relay.beat()
        assert held(dsn) == {1: LEAF, 2: LEAF}
        relay.publish(batches=1)
        relay.beat()
        assert held(dsn) == {2: LEAF}
        relay.publish()
        assert relay.found == list(range(3 * LEAF))
        relay.beat()
        assert held(dsn) == {}


def test_a_relay_whose_progress_is_old_takes_nothing_that_came_after(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as zombie:
        append(writer, 0)
        writer.commit()
        zombie.publish()
        old = zombie.cursor
        append(writer, LEAF)
        writer.commit()
        zombie.retention.confirmed(old)
        zombie.beat(4)
        assert held(dsn) == {0: 2 * LEAF}


def test_a_session_that_is_not_the_one_that_began_rotates_nothing(
    dsn: str, writer: Connection
) -> None:
    with shop(dsn) as relay, psycopg.connect(dsn, autocommit=True) as other:
        append(writer, 0)
        writer.commit()
        relay.publish()
        relay.beat()
        relay.retention.beat(other)
        assert held(dsn) == {0: LEAF}


def test_what_another_relay_of_the_outbox_has_not_published_stays(
    dsn: str,
    writer: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.postgres.retention._PATIENCE", 0.0)
    with shop(dsn) as one, shop(dsn, name="second") as second:
        append(writer, 0)
        writer.commit()
        one.publish()
        one.beat(3)
        assert held(dsn) == {0: LEAF}
        assert "DELETE FROM \"outbox\".relays WHERE name = 'second'" in caplog.text
        second.publish()
        second.beat()
        assert second.found == one.found
        assert held(dsn) == {}


def test_before_any_relay_has_said_how_far_it_is_nothing_goes(writer: Connection) -> None:
    append(writer, 0)
    writer.execute("SELECT outbox.write_to_leaf(1)")
    writer.commit()
    assert writer.execute("SELECT outbox.truncate_leaf(0, '0')").fetchone() == ("unpublished by ",)


@pytest.mark.parametrize("has_read", [False, True])
def test_a_leaf_that_another_shard_is_emptying_is_locked(
    dsn: str,
    writer: Connection,
    has_read: bool,  # noqa: FBT001  # the case itself
) -> None:
    lock = b"LOCK TABLE ONLY outbox.events_1 IN ACCESS EXCLUSIVE MODE"
    leaf = Leaf(1, heap_bytes=1, total_bytes=1, live_rows=0, written=False)
    with shop(dsn) as relay, psycopg.connect(dsn) as other, ThreadPoolExecutor(1) as pool:
        if has_read:
            # Each waits for what the other has read, and Postgres sees the deadlock at once.
            relay.conn.execute("BEGIN")
            for session in (relay.conn, other):
                session.execute("SELECT FROM ONLY outbox.events_1")
        emptying = pool.submit(other.execute, lock)
        until(lambda: asks(writer, other), within=10, what="the lock to be asked for")
        assert relay.retention._empty(relay.conn, leaf) == "locked"
        relay.conn.execute("ROLLBACK")
        emptying.result(patient(10))


def asks(conn: Connection, session: Connection) -> bool:
    """Return whether a session has an exclusive lock, or waits for it."""
    row = conn.execute(
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND pid = %s",
        [session.info.backend_pid],
    ).fetchone()
    return row is not None and row[0] > 0


def test_rows_are_kept_as_long_as_asked_for(dsn: str, writer: Connection) -> None:
    with shop(dsn, keep=3600) as relay:
        for lap in range(2):
            append(writer, lap * LEAF)
            writer.commit()
            relay.publish()
            relay.beat(2)
        assert held(dsn) == {0: LEAF, 1: LEAF}
        assert relay.delayed("kept")
        writer.execute("UPDATE outbox.events_0 SET appended_at = now() - interval '61 minutes'")
        writer.commit()
        relay.publish()
        relay.beat()
        assert held(dsn) == {1: LEAF}


def test_captured_from_the_log_the_table_is_emptied_of_what_the_log_has_passed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(database)
    set_mode = capture._set_mode

    with (
        psycopg.connect(database) as before,
        psycopg.connect(database) as late,
        try_acquire(database, [1], 30) as lease,
    ):
        append(before, 0)
        before.commit()

        def set_later(conn: Connection, name: str, *, wal: bool) -> None:
            # The slot exists, and writers do not know of it yet.
            append(late, LEAF)
            set_mode(conn, name, wal=wal)

        monkeypatch.setattr("outbox.schema.capture._set_mode", set_later)
        capture.use_wal(database, "outbox")
        with closing(
            SwitchingCapture(
                database, "outbox", batch_rows=1000, batch_bytes=10**8, timing=Timing(10, 60)
            )
        ) as log:
            assert lease is not None
            relay = Shop(database, lease.conn, log)
            relay.cursor = log.resume(None)

            def published(count: int) -> bool:
                relay.publish()
                relay.beat()
                return len(relay.found) >= count

            until(lambda: published(LEAF), within=20, what="the table before the slot")
            relay.beat(3)
            assert held(database) == {0: LEAF}
            late.commit()
            # Room is made that the log has too, and that contains no event.
            until(lambda: published(2 * LEAF), within=20, what="rows of a late writer")
            append(before, 2 * LEAF, 1)
            before.commit()
            until(lambda: published(2 * LEAF + 1) and not held(database), within=20, what="room")
            append(before, 2 * LEAF + 1, 1)
            before.commit()
            until(lambda: published(2 * LEAF + 2), within=20, what="what came behind the TRUNCATE")
            assert relay.found == list(range(2 * LEAF + 2))


def test_what_a_slot_made_with_a_gap_may_have_passed_over_stays(database: str) -> None:
    installed(database)
    with psycopg.connect(database) as writer, try_acquire(database, [1], 30) as lease:
        assert lease is not None
        append(writer, 0)
        writer.commit()
        capture.use_wal(database, "outbox", accept_gap=True)
        timing = Timing(10, 60)
        with closing(
            SwitchingCapture(database, "outbox", batch_rows=1000, batch_bytes=10**8, timing=timing)
        ) as log:
            relay = Shop(database, lease.conn, log)
            relay.cursor = log.resume(None)
            for number in range(3):
                append(writer, LEAF + number, 1)
                writer.commit()

                def published(count: int = number + 1) -> bool:
                    relay.publish()
                    relay.beat()
                    return len(relay.found) >= count

                until(published, within=20, what="an event behind the gap")
            assert relay.found == [LEAF, LEAF + 1, LEAF + 2]
            assert held(database) == {0: LEAF}


def test_another_outbox_of_the_database_is_left_alone(database: str) -> None:
    installed(database)
    with psycopg.connect(database) as conn:
        schema.install(conn, 'other "one"')
        append(conn, 0)
        append(conn, 0, name='other "one"')
    with shop(database) as relay:
        relay.publish()
        relay.beat(4)
    assert held(database) == {}
    assert held(database, 'other "one"') == {0: LEAF}
    with shop(database, name="other", schema_name='other "one"') as relay:
        relay.publish()
        relay.beat(4)
    assert held(database, 'other "one"') == {}


def test_with_one_snapshot_for_a_whole_transaction_nothing_is_emptied(writer: Connection) -> None:
    append(writer, 0)
    writer.commit()
    writer.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="read committed"):
        writer.execute("SELECT outbox.truncate_leaf(0, '0')")


@pytest.fixture
def role(dsn: str) -> Iterator[str]:
    """A role that may write events, and read them."""
    name = "reader_without_rights"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'".encode())
        schema.install(conn, roles=schema.Roles(writers=[name]))
        read = "outbox.events, outbox.migrations, outbox.reading"
        conn.execute(f"GRANT SELECT ON {read} TO {name}".encode())
    try:
        yield name
    finally:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(f"DROP OWNED BY {name}".encode())
            conn.execute(f"DROP ROLE {name}".encode())


def test_a_writer_can_make_nobodys_rows_vanish(dsn: str, role: str) -> None:
    with psycopg.connect(make_conninfo(dsn, user=role, password="x"), autocommit=True) as conn:  # noqa: S106  # of a moment
        with conn.transaction():
            write(conn, event("t", 1))
        for call in (
            "truncate_leaf(0, '0')",
            "write_to_leaf(1)",
            "confirm('shop', '9:9:', NULL, 9)",
            "leaves()",
            "unpublished('outbox.events')",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute(f"SELECT outbox.{call}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("TRUNCATE outbox.events_0")


def test_a_relay_without_the_rights_goes_on_and_says_that_rows_stay(
    dsn: str, writer: Connection, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    with shop(make_conninfo(dsn, user=role, password="x")) as relay:  # noqa: S106  # of a moment
        append(writer, 0)
        writer.commit()
        relay.publish()
        relay.beat(3)
        assert relay.found == list(range(LEAF))
        assert "published rows stay: permission denied for function confirm" in caplog.text
        assert relay.delayed("forbidden")
    assert held(dsn) == {0: LEAF}


LEAVES = next(step.version for step in schema.migrations() if step.name == "leaves")


def before_leaves(dsn: str) -> None:
    """Install the outbox as it was before there were leaves."""
    with psycopg.connect(dsn) as conn:
        conn.execute(old_schemas.script(LEAVES - 1).encode())


def test_rows_from_before_the_upgrade_stay_until_they_are_published_and_keep_their_order(
    database: str,
) -> None:
    before_leaves(database)
    with psycopg.connect(database) as writer:
        append(writer, 0)
        writer.commit()
        assert "leaves" in [step.name for step in schema.install(writer)]
        append(writer, LEAF)
    with shop(database) as relay:
        relay.beat(2)
        assert sum(held(database).values()) == 2 * LEAF
        relay.publish()
        assert relay.found == list(range(2 * LEAF))
        relay.beat(2)
        assert held(database) == {}


def test_an_upgrade_under_writers_and_a_relay_loses_and_reorders_nothing(database: str) -> None:
    before_leaves(database)
    enough = threading.Event()
    written = 0

    def write_on() -> None:
        nonlocal written
        with psycopg.connect(database) as conn:
            while not enough.is_set():
                append(conn, written, 5)
                conn.commit()
                written += 5

    with psycopg.connect(database) as old, ThreadPoolExecutor(1) as pool:
        # A relay of the version before already has its connection and its prepared statements.
        old.execute(
            "INSERT INTO outbox.migrations (version, name)"
            " SELECT n, 'pretended' FROM generate_series(%s::int, %s::int) AS n",
            [LEAVES, schema.migrations()[-1].version],
        )
        old.commit()
        with closing(
            TableCapture(database, "outbox", batch_rows=1000, batch_bytes=10**8)
        ) as capture:
            old.execute("DELETE FROM outbox.migrations WHERE version >= %s", [LEAVES])
            old.commit()
            writing = pool.submit(write_on)
            cursor: Place = Cursor()
            found = list[int]()

            def read_on(until_row: Callable[[], int]) -> bool:
                nonlocal cursor
                for batch in capture.batches(cursor):
                    found.extend(int(row[5]) for row in batch.rows)
                    cursor = batch.cursor
                return len(found) > until_row()

            until(lambda: read_on(lambda: 200), within=30, what="events before the upgrade")
            with psycopg.connect(database) as conn:
                upgrading = pool_of_its_own(lambda: schema.install(conn))
                while not upgrading():
                    read_on(lambda: 0)
            mark = written
            until(lambda: read_on(lambda: mark + 200), within=30, what="events after it")
            enough.set()
            writing.result(patient(10))
            until(lambda: read_on(lambda: written - 1), within=30, what="the last event")
    assert found == list(range(written))
    assert set(held(database)) == {-1, 0}


def pool_of_its_own(task: Callable[[], object]) -> Callable[[], bool]:
    """
    Begin a task in a thread; return a function that tells whether it is done, or raises its error.
    """
    pool = ThreadPoolExecutor(1)
    running = pool.submit(task)

    def done() -> bool:
        if running.done():
            pool.shutdown()
            running.result()
            return True
        return False

    return done


def test_an_upgrade_that_would_make_writers_wait_for_long_is_refused(database: str) -> None:
    before_leaves(database)
    with psycopg.connect(database) as writer, psycopg.connect(database) as owner:
        append(writer, 0, 1)
        with pytest.raises(psycopg.errors.LockNotAvailable, match="nothing was changed"):
            schema.install(owner)
        owner.rollback()
        assert schema.version(owner) == LEAVES - 1
        writer.commit()
        schema.install(owner)
        schema.require(owner)
