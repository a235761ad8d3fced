"""
Commits that a synchronous standby has not confirmed are not published; a relay is no such standby.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import Postgres, server_user
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.wal import Timing
from tests.support.commands import doctor
from tests.support.failover import dsns, paired, promote, until_received
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import commit, committed, event, ids, installed, published, relays
from tests.support.rows import numbers
from tests.support.waiting import consume, patient, until

CAPTURES = ["table", "wal"]


@pytest.fixture
def server() -> Iterator[Postgres]:
    folder = temporary_directory(server_user())
    with Postgres(folder, fsync=False, temporary=True) as postgres:
        yield postgres


def wait_for_standbys(server: Postgres, names: str) -> None:
    """Make commits wait for the standbys with these names."""
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        conn.execute("SELECT pg_reload_conf()")

    def is_told() -> bool:
        with psycopg.connect(server.dsn) as conn:
            return conn.execute("SHOW synchronous_standby_names").fetchone() == (names,)

    until(is_told, within=20, what="the setting")


def until_it_waits(server: Postgres) -> None:
    """Wait until the commit of a writer waits for a standby."""
    query = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = ''"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        until(lambda: conn.execute(query).rowcount, within=20, what="a commit that waits")


@contextmanager
def committing(dsn: str, topic: str, *numbers: int) -> Iterator[Future[None]]:
    """Commit events in a thread; if all goes well, wait for its end."""
    pool = ThreadPoolExecutor(1)
    try:
        done = pool.submit(commit, dsn, *[event(topic, number) for number in numbers])
        yield done
        wait([done], patient(20))
    finally:
        pool.shutdown(wait=False)


@pytest.mark.parametrize("kind", CAPTURES)
def test_a_commit_that_waits_for_a_standby_is_not_read_before_others_see_it(
    server: Postgres, kind: str
) -> None:
    dsn, many = installed(server.dsn, kind), [2] * 250
    timing = Timing(lease=10.0, heartbeat=60.0)
    with (
        closing(
            SwitchingCapture(dsn, "outbox", batch_rows=100, batch_bytes=10**7, timing=timing)
        ) as capture,
        ThreadPoolExecutor(1) as reader,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        place = capture.resume(None)
        found: list[int] = []

        def read() -> int:
            nonlocal place
            for batch in capture.batches(place):
                place = batch.cursor
                found.extend(numbers(batch.rows))
            capture.wait(0.01)
            return len(found)

        commit(dsn, event("t", 1))
        until(lambda: read() == 1, within=20, what="an event that waits for nobody")
        wait_for_standbys(server, "away")
        with committing(dsn, "t", *many):
            until_it_waits(server)
            capture._look()
            # A reader may have to wait for the standby as well.
            reading = reader.submit(until, lambda: read() == 251, within=60, what="the others")
            query = "SELECT bool_and(sent_lsn >= pg_current_wal_flush_lsn()) IS NOT false"
            query += " FROM pg_stat_replication"
            until(
                lambda: conn.execute(query.encode()).fetchone() == (True,),
                within=20,
                what="all of the log on its way",
            )
            assert not wait([reading], 1).done
            assert found == [1]
            wait_for_standbys(server, "")
            reading.result(patient(60))
        assert found == [1, *many]


@pytest.mark.parametrize("kind", CAPTURES)
def test_a_failover_to_a_synchronous_standby_leaves_no_event_without_its_row(
    stack: Servers, topic: MakeTopic, tmp_path: Path, kind: str
) -> None:
    name = topic(1)
    with paired() as pair:
        dsn, after = dsns(pair.primary)[kind], dsns(pair.standby)[kind]
        with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
            # An active relay looks for such a change twice a second.
            wait_for_standbys(pair.primary, "walreceiver")
            relay = fleet.active(capture=kind)
            commit(dsn, event(name, 1))
            published(fleet, name, 1)
            until_received(pair)
            pair.standby.stop()
            with committing(dsn, name, 2) as hung:
                until_it_waits(pair.primary)
                if kind == "wal":
                    # It waits for what it has read, or for a commit of its own.
                    said = ("a commit waits for a synchronous standby", "Postgres: no answer for")
                    until(
                        lambda: any(each in relay.log for each in said),
                        within=60,
                        what="a relay that waits, too",
                    )
                relay.kill()
                pair.primary.kill()
                with pytest.raises(psycopg.OperationalError):
                    hung.result(patient(20))
            pair.standby.start()
            promote(pair)
            assert ids(consume(fleet.bootstrap, name)) == committed(after, name)
            if kind == "table":
                fleet.active(dsn=after, capture=kind)
                commit(after, event(name, 3))
                published(fleet, name, 2)
                assert ids(consume(fleet.bootstrap, name)) == committed(after, name)


def test_a_relay_of_the_log_refuses_to_be_a_synchronous_standby(
    stack: Servers, server: Postgres, topic: MakeTopic, tmp_path: Path
) -> None:
    name, dsn = topic(1), installed(server.dsn, "wal")
    said = "synchronous_standby_names is '*', by which the relay itself is a synchronous standby"
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active()
        commit(dsn, event(name, 1))
        published(fleet, name, 1)
        wait_for_standbys(server, "*")
        assert relay.wait() == 1
        assert said in relay.log
        again = fleet.start()
        assert again.wait() == 1
        assert said in again.log
        looked = doctor(fleet)
        assert looked.returncode == 1
        assert f"fail  {said}" in looked.stdout
        assert "name the real standbys there" in looked.stdout
        wait_for_standbys(server, "")
        fleet.active()


def test_a_relay_of_the_table_is_no_standby_whatever_the_server_waits_for(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(1)
    with paired() as pair, relays(tmp_path, pair.primary.dsn, stack.kafka.bootstrap) as fleet:
        fleet.active()
        wait_for_standbys(pair.primary, "*")
        commit(fleet.dsn, event(name, 1))
        published(fleet, name, 1)
        assert "synchronous_standby_names" not in doctor(fleet).stdout
