"""Services at work: transactions that write events, late, large, rolled back or cut short."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from outbox import Event, write

_KEYS = tuple(f"key-{number}" for number in range(32))
_BURSTS = (1, 1, 1, 1, 2, 2, 5, 5, 20, 300)
# Shares of the transactions.
_PART_TAKEN_BACK, _LATE, _ROLLED_BACK = 0.1, 0.2, 0.25


class Writers:
    """
    Writers that number the events of each key, under the key's row lock.

    The numbers of a key's committed events are 0, 1, 2, …, for what is rolled back takes its
    number back. So the counters alone tell what must be on the topic, and in which order.
    """

    def __init__(self, dsn: str, topic: str, *, seed: int, pace: float) -> None:
        self._dsn, self._topic, self._seed, self._pace = dsn, topic, seed, pace
        self._enough = threading.Event()

    def work(self, number: int) -> None:
        """Write until told to stop, whatever becomes of the server; one thread each."""
        chance = random.Random(self._seed * 1_000 + number)  # noqa: S311  # to be repeated, no secret
        while not self._enough.is_set():
            try:
                with psycopg.connect(self._dsn, connect_timeout=5) as conn:
                    while not self._enough.is_set():
                        self._transaction(conn, chance)
                        self._enough.wait(chance.random() * 2 * self._pace)
            except (psycopg.OperationalError, psycopg.Rollback):
                # Whether a commit that was cut short counts is told by the counters. A part that
                # cannot be taken back, for the server is gone, lets its Rollback through.
                self._enough.wait(0.1)

    def stop(self) -> None:
        self._enough.set()

    def _transaction(self, conn: psycopg.Connection, chance: random.Random) -> None:
        # Sorted, so that two writers never wait for each other.
        for key in sorted(chance.sample(_KEYS, chance.choice([1, 1, 1, 2, 3]))):
            self._events(conn, key, chance.choice(_BURSTS))
            if chance.random() < _PART_TAKEN_BACK:
                # A part that is taken back, in a transaction that stays.
                with conn.transaction() as part:
                    self._events(conn, key, 3)
                    raise psycopg.Rollback(part)
        if chance.random() < _LATE:
            self._enough.wait(chance.random() * 0.1)  # others commit before it
        if chance.random() < _ROLLED_BACK:
            conn.rollback()
        else:
            conn.commit()

    def _events(self, conn: psycopg.Connection, key: str, count: int) -> None:
        row = conn.execute(
            "UPDATE counters SET n = n + %s WHERE key = %s RETURNING n", [count, key]
        ).fetchone()
        last = row[0] if row else 0
        write(
            conn,
            *(
                Event(topic=self._topic, key=key, type="Counted", source="/proof", value=number)
                for number in range(last - count, last)
            ),
        )


@contextmanager
def at_work(dsn: str, topic: str, *, seed: int, count: int, pace: float) -> Iterator[None]:
    """Keep `count` writers at work; afterwards they have stopped, and none of them has failed."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE counters (key text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)")
        conn.execute("INSERT INTO counters (key) SELECT unnest(%s::text[])", [list(_KEYS)])
    writers = Writers(dsn, topic, seed=seed, pace=pace)
    with ThreadPoolExecutor(count, thread_name_prefix="writer") as pool:
        tasks: list[Future[None]] = [pool.submit(writers.work, number) for number in range(count)]
        try:
            yield
        finally:
            writers.stop()
        for task in tasks:
            task.result(60)


def committed(dsn: str) -> dict[str, int]:
    """Return how many events of each key are committed."""
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute("SELECT key, n FROM counters WHERE n > 0").fetchall())
