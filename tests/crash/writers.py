"""Services that write while the relay is being killed, each under the lock of its key."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from outbox import Event, write

KEYS = 20


@contextmanager
def writing(dsn: str, topic: str, *, writers: int = 3, pause: float = 0.004) -> Iterator[None]:
    """
    Write in the background until the block ends: mostly committing, sometimes rolling back.

    Each event's value is its key's number, taken under the row lock that serialises the key.
    """
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE numbers (key text PRIMARY KEY, n int NOT NULL)")
        conn.execute(
            "INSERT INTO numbers SELECT 'k' || k, 0 FROM generate_series(0, %s) AS k", [KEYS - 1]
        )
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            _write(dsn, topic, random.Random(seed), stop, pause=pause)
        except psycopg.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def _write(
    dsn: str, topic: str, chance: random.Random, stop: threading.Event, *, pause: float
) -> None:
    with psycopg.connect(dsn) as conn:
        while not stop.wait(chance.random() * pause * 2):
            # Sorted: two writers that take the same locks take them in the same order.
            for number in sorted(chance.sample(range(KEYS), chance.choice((1, 1, 1, 4)))):
                row = conn.execute(
                    "UPDATE numbers SET n = n + 1 WHERE key = %s RETURNING n", [f"k{number}"]
                ).fetchone()
                assert row is not None
                write(conn, Event(topic=topic, type="Counted", key=f"k{number}", value=row[0]))
            if chance.random() < 0.1:
                conn.rollback()
            else:
                conn.commit()
