"""A synchronous standby is promoted again and again: nothing is lost, and no relay refuses it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from dovecote.devstack.postgres.pair import Pair
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.load import load
from tests.support.relaying import AGREE, committed, difference, drained, ids, installed, relays
from tests.support.waiting import consume, until

PROMOTIONS = 3


@contextmanager
def noise(dsn: str) -> Iterator[None]:
    """Keep the log ahead of the standby, with records that concern no event."""
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            try:
                with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as conn:
                    conn.execute("CREATE TABLE IF NOT EXISTS public.noise (what text)")
                    conn.execute("SET synchronous_commit = off")
                    while not enough.wait(0.005):
                        conn.execute("INSERT INTO public.noise SELECT repeat(md5('x'), 500)")
            except psycopg.Error:
                enough.wait(0.1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def synced(pair: Pair) -> bool:
    """Return whether the standby has the slot; the server advances it once this is in the log."""
    with psycopg.connect(pair.primary.dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_log_standby_snapshot()")
    return pair.has_slots()


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_promotions_of_a_synchronous_standby_are_gone_through_under_load(
    stack: Servers, pair: Pair, topic: MakeTopic, tmp_path: Path, capture: str
) -> None:
    name, dsn = topic(2), installed(pair.dsn, capture)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        fleet.active()
        with load(dsn, name, writers=2), noise(dsn):
            for _ in range(PROMOTIONS):
                before = len(set(ids(consume(fleet.bootstrap, name))))
                until(
                    lambda before=before: (  # type: ignore[misc]  # mypy sees no default here
                        len(set(ids(consume(fleet.bootstrap, name)))) > before + 100
                    ),
                    within=90,
                    what="events that are published",
                )
                if capture == "wal":
                    until(lambda: synced(pair), within=150, what="the slots at the standby")
                pair.promote()
                pair.renew()
        found = drained(fleet, name)
    assert difference(committed(dsn, name), found) == AGREE
