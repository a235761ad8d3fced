"""Any interleaving of writers and readers is read once and in order."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import Connection

from outbox import Event, write
from relay.postgres.capture.table import TableCapture
from relay.rules.batch import Batch
from relay.rules.places.progress import Cursor, Place
from relay.rules.row import ID, KEY, VALUE
from tests.support.capturing import after_restart, append, capturing
from tests.support.relaying import event
from tests.support.rows import numbers
from tests.support.waiting import patient


class Interleaving(RuleBasedStateMachine):
    """Any order of writing, committing, rolling back, reading and restarting."""

    dsn = ""

    @initialize(rows=st.sampled_from([1, 3, 1000]))
    def begin(self, rows: int) -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute("TRUNCATE outbox.events")
        self.number = 0
        self.writers = [psycopg.connect(self.dsn) for _ in range(3)]
        self.pending: list[list[int]] = [[] for _ in self.writers]
        self.rows = rows
        self.capture = self.open()
        self.cursor: Place = Cursor()
        self.committed: list[int] = []
        self.found: list[int] = []

    def open(self) -> TableCapture:
        return TableCapture(self.dsn, "outbox", batch_rows=self.rows, batch_bytes=10**6)

    @rule(writer=st.integers(0, 2), count=st.integers(1, 4))
    def append(self, writer: int, count: int) -> None:
        numbers = list(range(self.number, self.number + count))
        self.number += count
        append(self.writers[writer], *numbers)
        self.pending[writer] += numbers

    @rule(writer=st.integers(0, 2))
    def append_and_undo(self, writer: int) -> None:
        with self.writers[writer].transaction(force_rollback=True):
            append(self.writers[writer], -1)

    @rule(writer=st.integers(0, 2))
    def commit(self, writer: int) -> None:
        self.writers[writer].commit()
        self.committed += self.pending[writer]
        self.pending[writer] = []

    @rule(writer=st.integers(0, 2))
    def roll_back(self, writer: int) -> None:
        self.writers[writer].rollback()
        self.pending[writer] = []

    def take(self, batch: Batch) -> None:
        self.found += numbers(batch.rows)
        self.cursor = batch.cursor

    @rule()
    def read_all(self) -> None:
        start = len(self.found)
        behind = sorted(set(self.committed) - set(self.found))
        window = self.cursor.until if isinstance(self.cursor, Cursor) else None
        for batch in self.capture.batches(self.cursor):
            self.take(batch)
        assert sorted(self.found[start:]) == behind
        if window is None:
            assert self.found[start:] == behind

    @precondition(lambda self: set(self.committed) != set(self.found))
    @rule(batches=st.integers(1, 3))
    def read_some_and_crash(self, batches: int) -> None:
        for batch in islice(self.capture.batches(self.cursor), batches):
            self.take(batch)
        self.cursor = after_restart(self.cursor, self.capture)
        self.capture.close()
        self.capture = self.open()

    def teardown(self) -> None:
        if hasattr(self, "capture"):
            self.read_all()
            assert sorted(self.found) == sorted(self.committed)
            self.capture.close()
            for writer in self.writers:
                writer.close()


@pytest.mark.contract
def test_any_interleaving_is_read_once_and_in_order_of_position(installation: str) -> None:
    run_state_machine_as_test(
        type("Run", (Interleaving,), {"dsn": installation}),
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class Writer:
    """
    Commits and rolls back events, numbered per key under the key's lock, until it is stopped.
    """

    def __init__(self, dsn: str, chance: random.Random, enough: threading.Event) -> None:
        self._dsn, self._chance, self._enough = dsn, chance, enough
        self.committed: list[str] = []

    def run(self) -> None:
        with psycopg.connect(self._dsn) as conn:
            while not self._enough.is_set():
                self._one_transaction(conn)

    def _one_transaction(self, conn: Connection) -> None:
        batch: list[Event] = []
        for key in sorted(self._chance.sample(KEYS, self._chance.randint(1, 2))):
            batch += locked(conn, key, self._chance.choice([1, 1, 1, 2, 30, 200]))
        if self._chance.random() < 0.3:
            self._enough.wait(self._chance.random() * 0.02)
        if self._chance.random() < 0.25:
            conn.rollback()
        else:
            conn.commit()
            self.committed += [event.id for event in batch]


KEYS = ["k0", "k1", "k2", "k3", "k4"]


def locked(conn: Connection, key: str, rows: int) -> list[Event]:
    """Write events of one key, numbered under the lock that serialises it."""
    row = conn.execute(
        "UPDATE counters SET n = n + %s WHERE key = %s RETURNING n", [rows, key]
    ).fetchone()
    last = row[0] if row else 0
    events = [event("t", number, key=key) for number in range(last - rows, last)]
    write(conn, *events)
    return events


def test_concurrent_writers_are_read_once_and_each_key_in_the_order_of_its_lock(dsn: str) -> None:
    seconds, seed = 4.0, 7
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS counters (key text PRIMARY KEY, n int NOT NULL)")
        conn.execute("TRUNCATE counters")
        conn.execute("INSERT INTO counters SELECT unnest(%s::text[]), 0", [KEYS])
    enough = threading.Event()
    # Seeded, so that runs can be repeated; it is not for secrets.
    writers = [Writer(dsn, random.Random(seed + n), enough) for n in range(4)]
    found: list[tuple[str, str, int]] = []

    def take(capture: TableCapture, cursor: Place) -> Place:
        for batch in capture.batches(cursor):
            cursor = batch.cursor
            found.extend(
                (row[ID], (row[KEY] or b"").decode(), int(row[VALUE] or b"")) for row in batch.rows
            )
        return cursor

    with ThreadPoolExecutor(4) as pool, capturing(dsn, rows=400) as capture:
        tasks = [pool.submit(writer.run) for writer in writers]
        cursor: Place = Cursor()
        ends = time.monotonic() + seconds
        # A slow machine has them go on for longer.
        while time.monotonic() < ends or sum(len(each.committed) for each in writers) <= 500:
            assert not any(task.done() for task in tasks), "a writer has failed"
            cursor = take(capture, cursor)
        enough.set()
        for task in tasks:
            task.result(patient(30))
        take(capture, after_restart(cursor, capture))
    committed = [id_ for writer in writers for id_ in writer.committed]
    assert sorted(id_ for id_, _, _ in found) == sorted(committed)
    for key in KEYS:
        numbers = [number for _, of, number in found if of == key]
        assert all(after > before for before, after in pairwise(numbers)), key
