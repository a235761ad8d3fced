"""The inbox forgets after its retention, with the rights of a consumer alone."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from dedup.inbox import schema as inbox_schema
from dedup.inbox.held import PostgresStates
from dedup.rules.identity import Identity
from dedup.rules.policies.results import Again
from dedup.rules.record import Record
from outbox import NotAllowed
from outbox.envelope import ID
from tests import old_schemas
from tests.support.crews import new_role
from tests.support.inboxes import DUPLICATE, INBOX, Ring, waits
from tests.support.waiting import patient, until


def test_an_event_is_known_until_the_retention_is_over(inbox: str) -> None:
    ring, again = Ring(inbox), Again(timedelta(seconds=1))
    with psycopg.connect(inbox) as tx:
        INBOX.take(tx, Identity("/s", "e1"))
        INBOX.again(tx, Identity("/s", "e1"), again)
    for _ in range(7):
        with psycopg.connect(inbox) as tx:
            assert INBOX.take(tx, Identity("/s", "e1")) == again
            INBOX.take(tx, Identity("/s", f"of turn {ring.phase()}", 0))
        if ring.phase() < 12:
            ring.turn()
    assert ring.rows() == 8

    # The ring is full, so nothing is forgotten for lack of room: the turn stays.
    ring.turn()
    ring.age()
    ring.rotate("6 days")
    assert ring.phase() == 14

    ring.rotate("0s")
    assert ring.rows() == 0
    with psycopg.connect(inbox) as tx:
        assert INBOX.take(tx, Identity("/s", "e1")) is None
    ring.turn()


def test_the_turn_waits_for_who_knows_of_the_old_one_alone(inbox: str) -> None:
    ring = Ring(inbox)
    with psycopg.connect(inbox) as old, psycopg.connect(inbox) as new:
        assert INBOX.take(old, Identity("/s", "e1")) is None
        ring.age()
        for _ in range(4):
            ring.rotate("6 days")
        # Both are written: the copy meets the event at the index of the old one.
        assert ring.phase() == 1
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(INBOX.take, new, Identity("/s", "e1"))
            until(lambda: waits(inbox), within=10, what="the copy to wait")
            old.commit()
            assert waiting.result(patient(10)) == DUPLICATE
        new.commit()
        ring.rotate("6 days")
        assert ring.phase() == 2
        assert INBOX.take(new, Identity("/s", "e1")) == DUPLICATE


def test_a_snapshot_from_before_the_turn_is_refused_and_not_wrong(inbox: str) -> None:
    ring = Ring(inbox)
    with psycopg.connect(inbox) as old:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT 1 FROM inbox.migrations")
        with psycopg.connect(inbox) as tx:
            INBOX.take(tx, Identity("/s", "e1"))
        ring.turn()
        with pytest.raises(errors.SerializationFailure, match="try it again"):
            INBOX.take(old, Identity("/s", "e1"))
        old.rollback()
        assert INBOX.take(old, Identity("/s", "e1")) == DUPLICATE


def test_a_clock_that_was_years_ahead_does_not_stop_the_turns(inbox: str) -> None:
    ring = Ring(inbox)
    with psycopg.connect(inbox) as tx:
        INBOX.take(tx, Identity("/s", "e1"))
    ring.turn()
    with psycopg.connect(inbox) as conn:
        conn.execute(
            "UPDATE inbox.slots SET began = began + interval '10 years',"
            " ended = ended + interval '10 years'"
        )
    ring.rotate("6 days")
    ring.turn()
    assert ring.rows() == 1
    ring.rotate("0s")
    assert ring.rows() == 0


@pytest.mark.parametrize("midst", [False, True], ids=["between", "in the midst of a turn"])
def test_an_inbox_that_was_restored_knows_no_transactions_of_another_cluster(
    inbox: str, *, midst: bool
) -> None:
    ring = Ring(inbox)
    if midst:
        ring.age()
        for _ in range(2):
            ring.rotate("6 days")
        assert ring.phase() == 1
    with psycopg.connect(inbox) as conn:
        conn.execute("SELECT setval('inbox.barrier', 1000000000000)")
        conn.execute("UPDATE inbox.pending SET barrier = 1000000000000")
    for _ in range(3):
        ring.rotate("6 days")
    assert ring.phase() == (2 if midst else 0)
    with psycopg.connect(inbox) as tx:
        tx.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert INBOX.take(tx, Identity("/s", "e1")) is None


def test_no_event_is_taken_twice_while_the_turn_passes_on(inbox: str) -> None:
    """Four handlers race for the same events, in transactions that last, across many turns."""
    ring, stop = Ring(inbox), threading.Event()
    turns: list[int] = []

    def race(seed: int) -> int:
        taken = 0
        levels = [None, psycopg.IsolationLevel.REPEATABLE_READ]
        with psycopg.connect(inbox) as conn:
            conn.isolation_level = levels[seed % 2]
            for number in range(300):
                try:
                    new = INBOX.take(conn, Identity("/s", f"e{number}")) is None
                    stop.wait(0.001 * (number % 3))
                    conn.commit()
                    taken += new
                except errors.SerializationFailure:
                    conn.rollback()
        return taken

    def turn() -> None:
        while not stop.is_set():
            ring.age()
            ring.rotate("6 days")
            turns.append(ring.phase())

    with ThreadPoolExecutor(5) as pool:
        turning = pool.submit(turn)
        racing = [pool.submit(race, seed) for seed in range(4)]
        try:
            taken = sum(each.result(patient(60)) for each in racing)
            until(lambda: len(turns) > 5 and ring.phase() > 4, within=20, what="many turns")
        finally:
            stop.set()
        turning.result(patient(10))
    assert taken == 300


@pytest.fixture
def consumer(inbox: str) -> Iterator[tuple[str, str]]:
    """A role, and its connection string."""
    with new_role(inbox, "consumer") as made:
        yield made


def test_a_consumer_can_do_its_duty_and_nothing_else(
    inbox: str, consumer: tuple[str, str]
) -> None:
    role, dsn = consumer
    with psycopg.connect(inbox) as owner:
        inbox_schema.install(owner, consumers=[role])
    with psycopg.connect(dsn) as tx:
        inbox_schema.require(tx)
        assert INBOX.take(tx, Identity("/s", "e1")) is None
        INBOX.again(tx, Identity("/s", "e1"), Again(timedelta(0)))
        tx.execute("SELECT inbox.rotate('7 days')")
    for forbidden in ("SELECT FROM inbox.handled", "DELETE FROM inbox.handled_0"):
        with refused(dsn) as tx:
            tx.execute(forbidden.encode())


def refused(dsn: str) -> AbstractContextManager[Any]:
    return _Refused(dsn)


class _Refused:
    def __init__(self, dsn: str) -> None:
        self._conn = psycopg.connect(dsn)

    def __enter__(self) -> psycopg.Connection:
        return self._conn

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._conn.close()
        assert kind is errors.InsufficientPrivilege
        return True


def test_an_upgrade_lets_those_go_on_who_consumed_before(
    database: str, consumer: tuple[str, str]
) -> None:
    role, dsn = consumer
    granted = "".join(
        f"GRANT {what} TO {role};"
        for what in (
            "USAGE ON SCHEMA inbox",
            "SELECT ON inbox.migrations",
            "EXECUTE ON FUNCTION inbox.take, inbox.take_many, inbox.again, inbox.rotate",
        )
    )
    with psycopg.connect(database) as owner:
        owner.execute("DROP SCHEMA inbox CASCADE")
        owner.execute(old_schemas.script(1, "inbox", part="inbox").encode())
        owner.execute(granted.encode())
        inbox_schema.install(owner)

    with psycopg.connect(dsn) as tx:
        inbox_schema.require(tx)
        tx.execute("SELECT FROM inbox.held")


def test_a_role_without_its_rights_is_refused_with_the_command(
    inbox: str, consumer: tuple[str, str]
) -> None:
    role, dsn = consumer
    command = f"dovecote init inbox --consumer-role {role}"
    states = PostgresStates(dsn, "billing")
    with psycopg.connect(dsn) as tx, pytest.raises(NotAllowed, match=command):
        inbox_schema.require(tx)
    with psycopg.connect(inbox) as owner:
        inbox_schema.install(owner, consumers=[role])
        owner.execute(f"REVOKE DELETE ON inbox.held FROM {role}".encode())
    with psycopg.connect(dsn) as tx, pytest.raises(NotAllowed, match=command):
        inbox_schema.require(tx)
    with pytest.raises(NotAllowed, match=command):
        states.drop(Record("orders", 0, 0, 0, b"k", b"{}", [(ID, b"e1")]))
    states.close()
