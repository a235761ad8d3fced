"""Handle events with an inbox."""

import psycopg
import pytest

from dedup.inbox import schema
from dedup.inbox.inbox import Inbox
from dedup.rules.policies.results import Skip
from tests.support.waiting import until

INBOX = Inbox("billing")
DUPLICATE = Skip("duplicate of e1")


@pytest.fixture
def inbox(database: str) -> str:
    """A database with an inbox and a table of effects."""
    with psycopg.connect(database) as conn:
        schema.install(conn)
        conn.execute("CREATE TABLE effects (id text NOT NULL)")
    return database


@pytest.fixture
def both(dsn: str) -> str:
    """A database with an outbox and an inbox."""
    with psycopg.connect(dsn) as conn:
        schema.install(conn)
        conn.execute("TRUNCATE inbox.handled")
    return dsn


def waits(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        return conn.execute(f"{query} AND wait_event_type = 'Lock'").fetchone() is not None


class Ring:
    """An inbox whose turns pass as fast as the test likes."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def rotate(self, retention: str = "0s") -> None:
        with psycopg.connect(self.dsn) as conn:
            conn.execute("SELECT inbox.rotate(%s)", [retention])

    def phase(self) -> int:
        return self._one("SELECT last_value FROM inbox.phase")

    def rows(self) -> int:
        return self._one("SELECT count(*) FROM inbox.handled")

    def turn(self) -> None:
        """Pass the turn on, once, without forgetting anything."""
        before = self.phase()
        self.age()
        until(lambda: self._rotated() >= before + 2, within=10, what="the turn to pass on")

    def age(self) -> None:
        """Make the present slot as old as a turn is long."""
        with psycopg.connect(self.dsn) as conn:
            conn.execute("UPDATE inbox.slots SET began = began - interval '1 day'")

    def _rotated(self) -> int:
        self.rotate("6 days")
        return self.phase()

    def _one(self, query: str) -> int:
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])
