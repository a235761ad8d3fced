"""Services at work: transactions that write events, late, large, rolled back or cut short."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from secrets import token_hex
from uuid import UUID, uuid4

import psycopg
from psycopg import sql

from outbox import Event, write

_KEYS = tuple(f"key-{number}" for number in range(32))
_BURSTS = (1, 1, 1, 1, 2, 2, 5, 5, 20, 300)
# Shares of the transactions.
_PART_TAKEN_BACK, _LATE, _ROLLED_BACK, _NEW_SESSION = 0.1, 0.2, 0.25, 0.02

# The numbers of a key start again at this distance when the server is restored.
ERA = 1_000_000_000

_TABLES = """
CREATE TABLE counters (
    key text PRIMARY KEY, era bigint NOT NULL DEFAULT 0, n bigint NOT NULL DEFAULT 0
);
CREATE TABLE past (key text, era bigint, n bigint, PRIMARY KEY (key, era));

CREATE FUNCTION counted(of_key text, count bigint) RETURNS bigint
LANGUAGE sql BEGIN ATOMIC
    INSERT INTO counters AS c (key, n) VALUES (of_key, count)
    ON CONFLICT (key) DO UPDATE SET n = c.n + count
    RETURNING era * 1000000000 + n - count;
END;

CREATE FUNCTION write_in_function(of_key text, count bigint, topic text) RETURNS void
LANGUAGE plpgsql AS $write$
DECLARE
    first  bigint := counted(of_key, count);
    number bigint;
BEGIN
    FOR number IN SELECT generate_series(first, first + count - 1) LOOP
        PERFORM outbox.append(topic => write_in_function.topic, type => 'Counted',
            key => convert_to(of_key, 'UTF8'), value => convert_to(number::text, 'UTF8'),
            source => '/proof');
    END LOOP;
END
$write$;

CREATE FUNCTION write_with_clause(of_key text, count bigint, topic text) RETURNS void
LANGUAGE plpgsql SET synchronous_commit = off AS $write$
BEGIN
    PERFORM write_in_function(of_key, count, topic);
END
$write$;
"""


class Way(StrEnum):
    """A way in which a service writes."""

    PLAIN = "plain"
    FUNCTION = "function"
    CLAUSE = "function with SET synchronous_commit = off"
    PREPARED = "two-phase commit"


_WAYS = (Way.PLAIN, Way.PLAIN, Way.PLAIN, Way.FUNCTION, Way.CLAUSE, Way.PREPARED)


class Writers:
    """
    Writers that number the events of each key, under the key's row lock.

    The numbers of a key's committed events are 0, 1, 2, …, since a rollback takes its numbers
    back. So the counters alone show what must be in the topic, and in which order.
    """

    def __init__(self, dsn: str, topic: str, *, seed: int, pace: float, ways: bool = True) -> None:
        self._dsn, self._topic, self._seed, self._pace = dsn, topic, seed, pace
        self._ways = _WAYS if ways else (Way.PLAIN,)
        self._enough = threading.Event()
        self._may_write = threading.Event()
        self._may_write.set()

    def work(self, number: int) -> None:
        """
        Write until told to stop, whatever happens to the server; each writer has its own thread.
        """
        chance = random.Random(self._seed * 1_000 + number)  # noqa: S311  # to be repeated, no secret
        while not self._enough.is_set():
            try:
                with psycopg.connect(self._dsn, connect_timeout=5) as conn:
                    conclude(conn, f"w{number}-")
                    while not self._enough.is_set():
                        self._may_write.wait(1)
                        if not self._may_write.is_set():
                            continue
                        self._transaction(conn, chance, f"w{number}-")
                        self._enough.wait(chance.random() * 2 * self._pace)
                        if chance.random() < _NEW_SESSION:
                            break
            except (psycopg.OperationalError, psycopg.Rollback):
                # The counters show whether a commit that was cut short counts. A part that cannot
                # be rolled back, because the server is gone, lets its Rollback through.
                self._enough.wait(0.1)

    def stop(self) -> None:
        self._enough.set()

    def hold(self) -> None:
        """Begin no more transactions until `go_on`."""
        self._may_write.clear()

    def go_on(self) -> None:
        self._may_write.set()

    def _transaction(self, conn: psycopg.Connection, chance: random.Random, mine: str) -> None:
        way = chance.choice(self._ways)
        # Sorted, so that two writers never wait for each other.
        for key in sorted(chance.sample(_KEYS, chance.choice([1, 1, 1, 2, 3]))):
            self._events(conn, key, chance.choice(_BURSTS), way)
            if chance.random() < _PART_TAKEN_BACK:
                # A part that is rolled back, in a transaction that stays.
                with conn.transaction() as part:
                    self._events(conn, key, 3, way)
                    raise psycopg.Rollback(part)
        if chance.random() < _LATE:
            self._enough.wait(chance.random() * 0.1)  # others commit before it
        if chance.random() < _ROLLED_BACK:
            conn.rollback()
        elif way is Way.PREPARED:
            self._prepare(conn, mine)
        else:
            conn.commit()

    def _prepare(self, conn: psycopg.Connection, mine: str) -> None:
        name = f"{mine}{uuid4().hex}"
        conn.execute(sql.SQL("PREPARE TRANSACTION {}").format(name))
        conn.commit()
        conclude(conn, mine)

    def _events(self, conn: psycopg.Connection, key: str, count: int, way: Way) -> None:
        if way in {Way.FUNCTION, Way.CLAUSE}:
            name = "write_in_function" if way is Way.FUNCTION else "write_with_clause"
            query = sql.SQL("SELECT {}(%s, %s, %s)").format(sql.Identifier(name))
            conn.execute(query, [key, count, self._topic])
            return
        write(conn, *events(conn, key, count, self._topic))


def events(
    conn: psycopg.Connection, key: str, count: int, topic: str, *, padding: int = 0
) -> list[Event]:
    """Count `count` more events of a key, and return them."""
    row = conn.execute("SELECT counted(%s, %s)", [key, count]).fetchone()
    first = int(row[0]) if row else 0
    return [
        Event(
            topic=topic,
            key=key,
            type="Counted",
            source="/proof",
            id=str(known(key, number)),
            # Random values do not get smaller when they are compressed.
            value=[number, token_hex(padding)] if padding else number,
        )
        for number in range(first, first + count)
    ]


def known(key: str, number: int) -> UUID:
    """Return an id that identifies the event: `number` of the key, one of those that park."""
    return UUID(int=int.from_bytes(key.encode()[-6:].rjust(6, b"\0")) << 64 | number)


def conclude(conn: psycopg.Connection, mine: str) -> None:
    """Commit this writer's prepared transactions, like a coordinator."""
    query = "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s AND database = current_database()"
    rows = conn.execute(query, [f"{mine}%"]).fetchall()
    conn.commit()
    for (name,) in rows:
        conn.autocommit = True
        conn.execute(sql.SQL("COMMIT PREPARED {}").format(name))
        conn.autocommit = False


def prepare(dsn: str) -> None:
    """Create the tables in which writers count."""
    with psycopg.connect(dsn) as conn:
        conn.execute(_TABLES.encode())
        conn.execute("INSERT INTO counters (key) SELECT unnest(%s::text[])", [list(_KEYS)])


@contextmanager
def at_work(writers: Writers, count: int) -> Iterator[None]:
    """Keep `count` writers at work; afterwards they have stopped, and none of them has failed."""
    with ThreadPoolExecutor(count, thread_name_prefix="writer") as pool:
        tasks: list[Future[None]] = [pool.submit(writers.work, number) for number in range(count)]
        try:
            yield
        finally:
            writers.stop()
        for task in tasks:
            task.result(60)


def begin_era(dsn: str) -> None:
    """Let numbers start again: some of the earlier events may exist in Kafka only."""
    with psycopg.connect(dsn) as conn:
        # A transaction that was prepared when the snapshot was taken counts as earlier.
        conclude(conn, "")
        conn.execute("LOCK TABLE counters")
        conn.execute("INSERT INTO past SELECT key, era, n FROM counters")
        conn.execute("UPDATE counters SET era = era + 1, n = 0")


def counted(dsn: str) -> dict[str, int]:
    """Return the number that the next event of each key will have."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT key, era, n FROM counters").fetchall()
    return {key: era * ERA + count for key, era, count in rows}


def committed(dsn: str) -> dict[str, list[range]]:
    """Return the numbers of the committed events of each key."""
    query = (
        "SELECT key, era, n FROM past UNION ALL SELECT key, era, n FROM counters ORDER BY key, era"
    )
    found: dict[str, list[range]] = {}
    with psycopg.connect(dsn) as conn:
        conclude(conn, "")
        for key, era, count in conn.execute(query):
            found.setdefault(key, []).append(range(era * ERA, era * ERA + count))
    return found


def gone(dsn: str) -> dict[str, list[range]]:
    """Return the numbers of each key's events for which the server may have no rows."""
    found: dict[str, list[range]] = {}
    with psycopg.connect(dsn) as conn:
        for key, era, count in conn.execute("SELECT key, era, n FROM past"):
            found.setdefault(key, []).append(range(era * ERA + count, (era + 1) * ERA))
    return found
