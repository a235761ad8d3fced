"""Handlers of an inbox, and the callers that wait for them."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from dedup import Inbox
from dedup.rules.identity import Identity
from tests.support.waiting import patient, until

SHIPPING = Inbox("shipping")
LONG = patient(30)


@contextmanager
def taking(dsn: str, id_: str) -> Iterator[psycopg.Connection]:
    """The transaction of a handler of one event."""
    with psycopg.connect(dsn) as conn:
        assert SHIPPING.take(conn, Identity("dovecote", id_)) is None
        yield conn


def take(dsn: str, *ids: str) -> None:
    for each in ids:
        with taking(dsn, each):
            pass


def registered(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("SELECT count(*) FROM inbox.awaited").fetchone()
        return row[0] if row else 0


def until_registered(dsn: str, count: int = 1) -> None:
    until(lambda: registered(dsn) == count, within=30, what="callers to wait")
