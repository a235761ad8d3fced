"""A crash of Postgres takes back commits that were not on disk; none of them was published."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from dovecote.devstack.postgres.postgres import Postgres
from tests.support.capturing import database_of
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import (
    AGREE,
    Relays,
    committed,
    difference,
    drained,
    ids,
    installed,
    relays,
)
from tests.support.waiting import consume, patient, until

CRASHES = 3
LAZILY = """
    CREATE FUNCTION place(topic text, id uuid, n int) RETURNS void LANGUAGE plpgsql
    SET synchronous_commit = off AS $$
    BEGIN
        INSERT INTO public.written (id, topic) VALUES (id::text, topic);
        PERFORM outbox.append(topic, 'key', n::text::bytea, 'Counted', id);
    END $$
"""


class Writer:
    """Commits through a function that turns `synchronous_commit` off, also after it has ended."""

    def __init__(self, dsn: str, topic: str) -> None:
        self._dsn, self._topic, self._enough = dsn, topic, threading.Event()
        self.committed = 0

    def work(self) -> None:
        while not self._enough.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as conn:
                    while not self._enough.wait(0.002):
                        call = "SELECT place(%s, %s, %s)"
                        conn.execute(call, [self._topic, uuid4(), self.committed])
                        self.committed += 1
            except psycopg.OperationalError:
                self.committed += 1
                self._enough.wait(0.1)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self.work)
        thread.start()
        try:
            yield
        finally:
            self._enough.set()
            thread.join()


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_no_event_is_on_kafka_whose_row_a_crash_took_back(
    stack: Servers, lazy: Postgres, topic: MakeTopic, tmp_path: Path, mode: str
) -> None:
    name, dsn = topic(1), installed(database_of(lazy))
    with psycopg.connect(dsn) as conn:
        conn.execute(LAZILY)
        conn.execute("SET LOCAL synchronous_commit = on")
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        fleet.active(mode=mode)
        writer = Writer(dsn, name)
        with writer.at_work():
            for _ in range(CRASHES):
                until_busy(writer, fleet, name)
                lazy.kill()
                lazy.start()
        known = ids(consume(fleet.bootstrap, name))
        assert set(known) - set(committed(dsn, name)) == set()
        found = drained(fleet, name)
        if mode == "exactly_once":
            assert difference(committed(dsn, name), found) == AGREE


def until_busy(writer: Writer, fleet: Relays, topic: str) -> None:
    """Wait until more is committed, and more published."""
    # While records keep coming, a reader may never reach the end.
    before, published = writer.committed, end(fleet.bootstrap, topic)
    until(lambda: writer.committed > before + 200, within=60, what="commits")
    until(lambda: end(fleet.bootstrap, topic) > published + 50, within=60, what="events")


def end(bootstrap: str, topic: str) -> int:
    """Return the offset after the newest record."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "tests"})) as consumer:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=patient(30))
        return int(high)
