"""A role that may only connect holds up nobody, whatever it locks; waits end, and say for whom."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from dedup.inbox import schema as inbox_schema
from dedup.inbox.inbox import Inbox
from dedup.rules.identity import Identity
from dovecote.devstack import Stack
from dovecote.push.store import schema as push_schema
from dovecote.push.store.lease import Lease, at_once
from outbox import Event, schema, write
from outbox.errors import DovecoteError, NotFree
from outbox.schema import holds
from outbox.schema.capture import use_table, use_wal
from relay.postgres.desk import Desk, Which
from relay.postgres.lease import active, role_of, try_lock
from relay.postgres.parked import ParkedStore
from tests import old_schemas
from tests.support.commands import doctor
from tests.support.crews import Crew, new_role
from tests.support.fix_stack import MakeTopic
from tests.support.parking import poison
from tests.support.relaying import event, published, relays
from tests.support.waiting import patient, until

Snatch = Callable[[], int]


def commit(dsn: str, *events: Event) -> None:
    with psycopg.connect(dsn) as conn:
        write(conn, *events)


@contextmanager
def nobody(dsn: str) -> Iterator[Snatch]:
    """
    Hold every advisory lock that was ever ours, and take each that somebody else has by then.

    The yielded function takes those that have become free since.
    """
    taken: set[tuple[int, int, int]] = set()
    with new_role(dsn, "nobody") as (_, own), psycopg.connect(own, autocommit=True) as conn:
        for number in (0x646F7665636F7465, 0x646F7665636F7466):
            conn.execute("SELECT pg_advisory_lock(%s)", [number])
        for text in ("relay outbox shop", "candidate outbox shop", "parked shop"):
            digest = blake2b(f"dovecote {text}".encode(), digest_size=8).digest()
            conn.execute("SELECT pg_advisory_lock(%s)", [int.from_bytes(digest, signed=True)])
        for text in ("push.at_once/push/x", "push.lease/push/x"):
            conn.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"dovecote.{text}"])
        conn.execute("SELECT pg_advisory_lock(hashtextextended('inbox.rotate', 0))")
        conn.execute(
            "SELECT pg_advisory_lock(hashtextextended('inbox.claims', n))"
            " FROM generate_series(1, 50) AS n"
        )

        def snatch() -> int:
            seen = "SELECT classid::bigint, objid::bigint, objsubid FROM pg_locks"
            taken.update(conn.execute(f"{seen} WHERE locktype = 'advisory'".encode()).fetchall())
            return sum(
                bool(row and row[0])
                for high, low, kind in taken
                if kind == 1
                for row in conn.execute(
                    "SELECT pg_try_advisory_lock((%s::bigint << 32) | %s::bigint)", [high, low]
                )
            )

        yield snatch


def test_locks_of_nobody_keep_no_relay_from_its_role(
    crew: Crew, stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    name = topic(1)
    with (
        nobody(crew.owner) as snatch,
        relays(tmp_path, crew.relay, stack.kafka.bootstrap) as fleet,
    ):
        first = fleet.active(lease="1s")
        second = fleet.start(lease="1s")
        second.until_logged("standing by")
        snatch()
        commit(crew.writer, event(name, 0))
        published(fleet, name, 1)
        # The number that the role has had is known by now, and is taken as it becomes free.
        first.kill()
        until(snatch, within=20, what="the number is taken")
        second.until_logged("publishing from")
        commit(crew.writer, event(name, 1))
        published(fleet, name, 2)
        assert second.terminate() == 0


def test_locks_of_nobody_keep_nobody_from_commands_and_upgrades(database: str) -> None:
    with nobody(database), psycopg.connect(database, autocommit=True) as conn:
        schema.install(conn)
        use_wal(database, "outbox")
        use_table(database, "outbox")
        store = ParkedStore(conn, "outbox", "shop")
        store.park(poison(3), 1)
        desk = Desk(conn, "outbox", "shop")
        assert desk.ask("drop", Which(topic="orders")).events == 3
        assert store.requeue(["orders"], 0) is not None
        inbox_schema.install(conn)
        push_schema.install(conn)


def test_locks_of_nobody_keep_no_consumer_from_its_commits(database: str) -> None:
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.commit()
        with nobody(database):
            for number in range(3):
                row = conn.execute("SELECT inbox.claim('billing', 'orders', 0)").fetchone()
                assert row is not None
                conn.commit()
                taken = Inbox("billing").take(conn, Identity("/s", f"e{number}"), row[0])
                assert taken is None
                conn.commit()
            conn.execute("SELECT inbox.rotate('1 hour')")
            conn.commit()


def test_locks_of_nobody_keep_no_process_from_its_lease(database: str) -> None:
    with psycopg.connect(database) as conn:
        push_schema.install(conn)
        conn.commit()
    with nobody(database), at_once(database, "push", "x", "no"):
        lease = Lease(database, "push", "x")
        assert lease.take(lambda: None)
        lease.close()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_of_many_sessions_one_holds_it_and_the_next_when_that_has_ended(
    crew: Crew, isolation: str
) -> None:
    wanted = role_of("outbox", "shop")
    own = make_conninfo(
        crew.relay, options="-c default_transaction_isolation=" + isolation.replace(" ", r"\ ")
    )
    with ExitStack() as stack, ThreadPoolExecutor(16) as pool:
        left = [stack.enter_context(psycopg.connect(own, autocommit=True)) for _ in range(16)]
        look = stack.enter_context(psycopg.connect(crew.owner, autocommit=True))
        while left:
            won = [
                conn
                for conn, has in zip(
                    left, pool.map(lambda conn: try_lock(conn, wanted), left), strict=True
                )
                if has
            ]
            # All of them may have met the line of one that was told that another has it.
            assert len(won) <= 1
            for conn in won:
                found = active(look, wanted)
                assert found is not None
                assert f"(session {conn.info.backend_pid})" in found
                assert try_lock(conn, wanted)
                conn.close()
                left.remove(conn)
                until(lambda: active(look, wanted) is None, within=10, what="it is free")


def test_a_hold_of_a_transaction_that_fails_is_none(crew: Crew) -> None:
    with psycopg.connect(crew.relay) as conn, psycopg.connect(crew.relay) as other:
        assert holds.hold(conn, "outbox", "it")
        # Another session does not wait for the end of the transaction.
        assert not holds.hold(other, "outbox", "it")
        other.rollback()
        conn.rollback()
        assert holds.hold(other, "outbox", "it")
        other.commit()
        assert not holds.hold(conn, "outbox", "it")
        conn.rollback()
        holds.let_go(other, "outbox", "it")
        # Until it commits, nobody sees what it has done under it.
        assert not holds.hold(conn, "outbox", "it")
        conn.rollback()
        other.commit()
        assert holds.hold(conn, "outbox", "it")


def test_who_has_the_process_id_and_the_number_of_an_ended_holder_holds_nothing(
    crew: Crew,
) -> None:
    wanted = role_of("outbox", "shop")
    with psycopg.connect(crew.relay, autocommit=True) as conn:
        assert try_lock(conn, wanted)
    with (
        psycopg.connect(crew.owner, autocommit=True) as owner,
        new_role(crew.owner, "nobody") as (_, own),
        psycopg.connect(own, autocommit=True) as nobody,
        psycopg.connect(crew.relay, autocommit=True) as conn,
    ):
        until(lambda: active(owner, wanted) is None, within=10, what="it is free")
        # Process ids begin anew with the server, and the locks of all sessions can be listed.
        row = owner.execute(
            "UPDATE outbox.holds SET pid = %s WHERE what = 'relay shop' RETURNING key",
            [nobody.info.backend_pid],
        ).fetchone()
        nobody.execute("SELECT pg_advisory_lock(%s)", row)
        assert active(owner, wanted) is None
        assert try_lock(conn, wanted)
        assert f"(session {conn.info.backend_pid})" in str(active(owner, wanted))


def test_a_wait_for_a_turn_ends_and_names_who_has_it(crew: Crew) -> None:
    with psycopg.connect(crew.owner, autocommit=True) as holder:
        assert holds.hold(holder, "outbox", holds.CAPTURE)
        said = f"session {holder.info.backend_pid} of role "
        with (
            psycopg.connect(crew.owner, autocommit=True) as conn,
            pytest.raises(NotFree, match=said),
        ):
            holds.hold_soon(conn, "outbox", holds.CAPTURE, seconds=0.2)


@pytest.mark.parametrize("duty", ["writer", "stranger"])
def test_no_other_role_can_hold_anything_or_lock_a_table(crew: Crew, duty: str) -> None:
    with psycopg.connect(getattr(crew, duty), autocommit=True) as conn:
        queries: list[LiteralString] = [
            "SELECT outbox.hold('relay shop')",
            "SELECT outbox.let_go('relay shop')",
            "SELECT FROM outbox.holds FOR UPDATE",
        ]
        for query in queries:
            with pytest.raises(errors.InsufficientPrivilege):
                conn.execute(query)
        tables = conn.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace ="
            " (SELECT oid FROM pg_namespace WHERE nspname = 'outbox') AND relkind = 'r'"
        ).fetchall()
        assert len(tables) > 10
        for (table,) in tables:
            with pytest.raises(errors.InsufficientPrivilege):
                conn.execute(f"BEGIN; LOCK TABLE {table} IN ACCESS SHARE MODE".encode())
            conn.execute("ROLLBACK")


@pytest.mark.parametrize("table", ["migrations", "parked"])
def test_an_upgrade_does_not_wait_for_ever_and_names_who_is_in_the_way(
    database: str, table: str
) -> None:
    with psycopg.connect(database) as other, psycopg.connect(database) as conn:
        conn.execute(old_schemas.script(old_schemas.OUTBOX).encode())
        conn.execute("SET lock_timeout = '300ms'")
        conn.commit()
        other.execute(f"LOCK TABLE outbox.{table} IN ROW EXCLUSIVE MODE".encode())
        said = f"session {other.info.backend_pid} of role "
        with pytest.raises((DovecoteError, errors.LockNotAvailable), match=said):
            schema.install(conn)
        conn.rollback()
        other.rollback()
        assert schema.install(conn)
        assert conn.execute("SHOW lock_timeout").fetchone() == ("300ms",)


def test_a_claim_and_a_commit_wait_for_a_while_and_name_who_is_in_the_way(database: str) -> None:
    with psycopg.connect(database) as first, psycopg.connect(database) as second:
        inbox_schema.install(first)
        first.commit()
        claim = "SELECT inbox.claim('billing', 'orders', 0)"
        (number,) = first.execute(claim).fetchone() or (0,)
        first.commit()
        second.execute("SET lock_timeout = '300ms'")
        second.commit()
        inbox = Inbox("billing")
        inbox.take(first, Identity("/s", "e1"), number)
        first.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as if it committed, for a long time
        with pytest.raises(errors.LockNotAvailable, match=f"session {first.info.backend_pid} of"):
            second.execute(claim)
        second.rollback()
        first.commit()
        inbox.take(second, Identity("/s", "e2"), number)
        first.execute(claim)  # and does not commit
        with pytest.raises(errors.LockNotAvailable, match=f"session {first.info.backend_pid} of"):
            second.commit()


def test_the_doctor_names_who_holds_up_whom(
    crew: Crew, stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    name = topic(1)
    with relays(tmp_path, crew.owner, stack.kafka.bootstrap) as fleet:
        fleet.active()
        commit(crew.writer, event(name, 0))
        published(fleet, name, 1)
        with (
            psycopg.connect(crew.owner) as other,
            psycopg.connect(crew.owner, autocommit=True) as holder,
            ThreadPoolExecutor(1) as pool,
        ):
            other.execute("LOCK TABLE outbox.events_0 IN SHARE MODE")
            writing = pool.submit(commit, crew.writer, event(name, 1))
            try:
                assert holds.hold(holder, "outbox", holds.CAPTURE)
                said = f"waits for a lock that session {other.info.backend_pid} of role "
                taken = "the turn to change the capture is taken: session "

                def is_said() -> bool:
                    found = doctor(fleet).stdout
                    return said in found and taken in found

                until(is_said, within=30, what="the doctor says it")
            finally:
                other.rollback()
                writing.result(patient(30))
