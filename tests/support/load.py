"""Writers that keep an outbox busy, numbering the events of each key under the key's lock."""

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg

from tests.support.relaying import event, write_known
from tests.support.waiting import patient, until

KEYS = tuple(f"k{n}" for n in range(8))
BURSTS = (1, 1, 1, 1, 2, 5, 300)


class Load:
    """
    Writers at work: a quarter of their transactions roll back, some are late, some are large.

    They survive crashes of the database; only the table shows whether an interrupted commit
    counts.
    """

    def __init__(
        self, dsn: str, topic: str, *, seed: int, pace: float, bursts: Sequence[int] = BURSTS
    ) -> None:
        self._dsn, self._topic, self._pace, self._bursts = dsn, topic, pace, bursts
        self._seed = seed
        self._enough = threading.Event()
        self.transactions = 0

    def work(self, number: int) -> None:
        """Write until told to stop; one thread each."""
        chance = random.Random(self._seed + number)  # to be repeated, no secret
        while not self._enough.is_set():
            try:
                with psycopg.connect(self._dsn, connect_timeout=5) as conn:
                    while not self._enough.is_set():
                        self._transaction(conn, chance)
                        self._enough.wait(chance.random() * 2 * self._pace)
            except psycopg.OperationalError:
                self._enough.wait(0.1)

    def _transaction(self, conn: psycopg.Connection, chance: random.Random) -> None:
        # Sorted, so that two writers never wait for each other.
        for key in sorted(chance.sample(KEYS, chance.choice([1, 1, 2]))):
            count = chance.choice(self._bursts)
            row = conn.execute(
                "UPDATE counters SET n = n + %s WHERE key = %s RETURNING n", [count, key]
            ).fetchone()
            last = row[0] if row else 0
            numbers = range(last - count, last)
            write_known(conn, *[event(self._topic, number, key=key) for number in numbers])
        if chance.random() < 0.2:
            self._enough.wait(chance.random() * 0.05)
        if chance.random() < 0.25:
            conn.rollback()
        else:
            conn.commit()
        self.transactions += 1

    def goes_on(self, count: int) -> None:
        """Wait for `count` more transactions."""
        enough = self.transactions + count
        until(lambda: self.transactions >= enough, within=30, what=f"{count} transactions")

    def ask_to_stop(self) -> None:
        """Let each writer end its transaction; they have stopped when `load` is over."""
        self._enough.set()


@contextmanager
def load(
    dsn: str,
    topic: str,
    *,
    writers: int = 3,
    seed: int = 1,
    pace: float = 0.01,
    bursts: Sequence[int] = BURSTS,
) -> Iterator[Load]:
    """Keep writers at work; afterwards they have stopped, and none of them has failed."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS counters (key text PRIMARY KEY, n int NOT NULL)")
        conn.execute(
            "INSERT INTO counters SELECT unnest(%s::text[]), 0 ON CONFLICT DO NOTHING",
            [list(KEYS)],
        )
    running = Load(dsn, topic, seed=seed, pace=pace, bursts=bursts)
    with ThreadPoolExecutor(writers) as pool:
        tasks: list[Future[None]] = [pool.submit(running.work, n) for n in range(writers)]
        try:
            yield running
        finally:
            running.ask_to_stop()
        for task in tasks:
            task.result(patient(30))
