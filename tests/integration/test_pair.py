"""A primary and its synchronous standby: promoted, split, made anew; and volumes restored."""

from concurrent.futures import ThreadPoolExecutor

import psycopg

from dovecote.devstack.postgres import volumes
from dovecote.devstack.postgres.pair import Pair
from tests.support.waiting import patient, until


def standbys(conn: psycopg.Connection) -> list[tuple[str, str]]:
    """Return what is connected, and how the server waits for it."""
    found = conn.execute("SELECT application_name, sync_state FROM pg_stat_replication")
    return [(name, state) for name, state in found]


def test_a_commit_that_was_confirmed_is_at_the_promoted_standby(pair: Pair) -> None:
    with psycopg.connect(pair.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS one")
        until(lambda: standbys(conn) == [("b", "sync")], within=20, what="b is synchronous")
    before = pair.primary.port

    pair.promote()

    with psycopg.connect(pair.dsn, autocommit=True) as conn:
        assert conn.execute("SELECT one, inet_server_port() FROM kept").fetchone() == (
            1,
            pair.primary.port,
        )
    assert pair.primary.port != before
    pair.renew()
    with psycopg.connect(pair.dsn, autocommit=True) as conn:
        until(lambda: standbys(conn) == [("a", "sync")], within=20, what="a is synchronous")


def test_a_split_leaves_old_sessions_at_the_old_primary(pair: Pair) -> None:
    query = "SELECT inet_server_port(), pg_is_in_recovery()"
    with psycopg.connect(pair.dsn, autocommit=True) as old:
        before = pair.primary

        pair.promote(split=True)

        assert old.execute(query).fetchone() == (before.port, False)
        with psycopg.connect(pair.dsn, autocommit=True) as new:
            assert new.execute(query).fetchone() == (pair.primary.port, False)


def test_a_commit_waits_while_the_standby_is_cut_off(pair: Pair) -> None:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with (
        psycopg.connect(pair.dsn, autocommit=True) as conn,
        psycopg.connect(pair.dsn, autocommit=True) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        conn.execute("CREATE TABLE waits (n int)")
        pair.gates.shut(held=["b>a"])
        try:
            done = pool.submit(conn.execute, "INSERT INTO waits VALUES (1)")
            until(lambda: other.execute(waiting).fetchone(), within=20, what="a commit that waits")
            assert other.execute("SELECT count(*) FROM waits").fetchone() == (0,)
        finally:
            pair.gates.shut()
        done.result(patient(30))
        assert other.execute("SELECT count(*) FROM waits").fetchone() == (1,)


def test_a_volume_that_is_put_back_is_what_it_was_when_it_was_taken(pair: Pair) -> None:
    with psycopg.connect(pair.dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE rows AS SELECT 1 AS n")
        identity = conn.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
    snapshot = pair.directory / "snapshot"
    volumes.take(pair.primary, snapshot)
    with psycopg.connect(pair.dsn, autocommit=True) as conn:
        conn.execute("INSERT INTO rows VALUES (2)")
    pair.primary.kill()

    volumes.put_back(pair.primary, snapshot)
    pair.primary.start()

    with psycopg.connect(pair.dsn, autocommit=True) as conn:
        assert conn.execute("SELECT n FROM rows").fetchall() == [(1,)]
        told = conn.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
        assert told == identity
