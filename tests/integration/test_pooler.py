"""Through a pooler that shares sessions nothing is locked, and whoever needs a lock says so."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from dedup.consumer import Consumer
from dedup.inbox import connections
from dedup.inbox import schema as inbox_schema
from dedup.inbox.connections import AsyncConnections, Connections
from dedup.inbox.keeper import Keeper
from dovecote.devstack import Stack
from dovecote.push.store import schema as push_schema
from dovecote.push.store.lease import alone
from dovecote.push.store.tables import Tables
from outbox import Event, write
from outbox.errors import SharedSession
from outbox.event import Limits
from outbox.postgres.session import connect
from outbox.producer.fallback import Fallback
from outbox.schema import capture
from tests.support import consuming
from tests.support.fix_stack import MakeTopic
from tests.support.pooler import pooled
from tests.support.relaying import (
    COMMAND,
    DSN,
    Relays,
    event,
    installed,
    published,
    relays,
    settings,
)
from tests.support.waiting import consume, patient, until

_SAYS = "is a pooler that hands the sessions of Postgres to other clients"

_LOCKS = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture(params=[(1, False), (2, True), (3, False), (3, True)], ids=str)
def shared(request: pytest.FixtureRequest, database: str) -> Iterator[tuple[str, str]]:
    """Yield a database's connection string, and that of a pool in front of it."""
    size, in_turn = request.param
    with pooled(installed(database), size=size, in_turn=in_turn) as via:
        yield database, via


@pytest.fixture
def via(database: str) -> Iterator[str]:
    with pooled(installed(database)) as found:
        yield found


def nothing_is_left(database: str, via: str) -> None:
    """Check that nothing of ours holds a lock, and that the pool's sessions are as they were."""
    with psycopg.connect(database) as conn:
        assert conn.execute(_LOCKS).fetchone() == (0,)
    for _ in range(3):
        with psycopg.connect(via, prepare_threshold=None) as conn:
            assert conn.execute("SHOW search_path").fetchone() == ('"$user", public',)
            assert conn.execute("SHOW row_security").fetchone() == ("on",)


def command(fleet: Relays, via: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = fleet.folder / "relay.toml"
    config.write_text(settings(fleet.bootstrap, name=fleet.name), encoding="utf-8")
    return subprocess.run(
        [COMMAND, *arguments, "--config", str(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
        env={**os.environ, DSN: via},
    )


def test_a_relay_is_refused_before_it_takes_a_lock(
    shared: tuple[str, str], stack: Stack, tmp_path: Path
) -> None:
    database, via = shared
    with relays(tmp_path, via, stack.kafka.bootstrap) as fleet:
        relay = fleet.start()
        assert relay.wait() == 1
    assert _SAYS in relay.log
    assert "pool_mode = session" in relay.log
    assert "Traceback" not in relay.log
    nothing_is_left(database, via)


def test_commands_are_refused_likewise(
    database: str, via: str, stack: Stack, tmp_path: Path
) -> None:
    with relays(tmp_path, database, stack.kafka.bootstrap) as fleet:
        for name in (["doctor"], ["status"], ["reshard"], ["parked", "list"]):
            done = command(fleet, via, "relay", *name)
            assert done.returncode == 1, done
            assert _SAYS in done.stdout + done.stderr
            assert "Traceback" not in done.stderr
        for part in (["outbox"], ["outbox", "--capture", "wal"], ["inbox"]):
            done = subprocess.run(
                [COMMAND, "init", *part, "--dsn", via],
                capture_output=True,
                text=True,
                check=False,
                timeout=patient(60),
            )
            assert done.returncode == 1
            assert _SAYS in done.stderr
    with pytest.raises(SharedSession, match=_SAYS):
        capture.use_wal(via, "outbox")
    nothing_is_left(database, via)


def test_push_takes_no_lease_through_it(database: str, via: str) -> None:
    with psycopg.connect(database) as conn:
        push_schema.install(conn)
    with closing(Tables(via)) as tables, pytest.raises(SharedSession, match=_SAYS):
        tables.require()
    with pytest.raises(SharedSession, match=_SAYS), alone(via, "push", "a", seconds=5):
        pass
    nothing_is_left(database, via)


def test_a_pool_that_keeps_a_session_for_each_client_will_do(
    database: str, stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    name = topic(1)
    with (
        pooled(installed(database), mode="session", size=10) as via,
        relays(tmp_path, via, stack.kafka.bootstrap) as fleet,
    ):
        fleet.active()
        with psycopg.connect(database) as conn:
            write(conn, event(name, 0))
        published(fleet, name, 1)
    with connect(database) as conn:
        assert conn.execute("SHOW row_security").fetchone() == ("off",)


def test_a_relay_of_the_log_needs_postgres_itself_and_says_so(
    database: str, stack: Stack, tmp_path: Path
) -> None:
    installed(database, "wal")
    with (
        pooled(database, mode="session", size=10) as via,
        relays(tmp_path, via, stack.kafka.bootstrap) as fleet,
    ):
        relay = fleet.start(capture="wal")
        assert relay.wait() == 1
    assert "opens no replication connection" in relay.log
    assert "`dsn` must lead to Postgres itself" in relay.log
    assert "Traceback" not in relay.log


async def _yes(_: object) -> bool:
    return True


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("known", [True, False], ids=["recognised", "found out"])
def test_a_consumer_with_its_inbox_works_through_it(
    database: str,
    via: str,
    stack: Stack,
    topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    awaited: bool,
    known: bool,
) -> None:
    name, dead, kafka = topic(), topic(), stack.kafka.bootstrap
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
        conn.execute("CREATE TABLE effects (id text)")
    given = psycopg.conninfo.conninfo_to_dict(via)
    monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
    if not known:
        # A pooler that answers as the server itself does.
        monkeypatch.setattr(connections, "is_direct", lambda _: True)
        monkeypatch.setattr(connections, "is_direct_async", _yes)
    add = "INSERT INTO effects VALUES (%s)"

    def handle(given: Event, tx: psycopg.Connection) -> None:
        tx.execute(add, [given.id])

    async def on_loop(given: Event, tx: psycopg.AsyncConnection) -> None:
        await tx.execute(add, [given.id])

    inbox = {"dsn": psycopg.conninfo.make_conninfo("", **given)}
    retries = {"dead_letter_topic": dead, "max_attempts": 1}
    consumer = Consumer(
        consuming.settings(kafka, name, inbox=inbox, retries=retries),
        on_loop if awaited else handle,
    )
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        for each in range(3):
            consuming.produce(
                kafka, *(consuming.event(name, f"k{n % 7}", 30 * each + n) for n in range(30))
            )
            until(
                lambda: consuming.committed(kafka, name)[0] == 30 * (each + 1),  # noqa: B023  # at once
                within=40,
                what="all are handled",
            )
    finally:
        consumer.stop()
        thread.join()
    assert consume(kafka, dead) == []
    with psycopg.connect(database) as conn:
        found = conn.execute("SELECT count(*), count(DISTINCT id) FROM effects").fetchone()
    assert found == (90, 90)
    keeper = Keeper(via, "inbox", timedelta(days=1), lag=lambda: 0.0, exceeded=print)
    keeper.once()
    assert "was not passed on" not in caplog.text
    nothing_is_left(database, via)


def test_services_write_and_consumers_remember_through_it(database: str, via: str) -> None:
    with psycopg.connect(database) as conn:
        inbox_schema.install(conn)
    for _ in range(10):
        with psycopg.connect(via, prepare_threshold=None) as conn:
            write(conn, Event(topic="orders", type="T"), Event(topic="orders", type="T"))
    with closing(Fallback(via, "outbox", Limits())) as fallback:
        for _ in range(10):
            assert (
                fallback.drained({b"\0" * 32: fallback.write([Event(topic="o", type="T")])}) == []
            )
    take = "SELECT inbox.take('group', %s, 1)"
    with closing(Connections(via)) as pool:
        for number in range(20):
            # Two at a time, so that a session is not always the one of before.
            with pool.begin() as one, pool.begin() as other:
                one.execute(take, [f"one-{number}@/s"])
                other.execute(take, [f"other-{number}@/s"])

    async def awaited() -> None:
        connections = AsyncConnections(via)
        for number in range(20):
            async with connections.begin() as one, connections.begin() as other:
                await one.execute(take, [f"awaited-one-{number}@/s"])
                await other.execute(take, [f"awaited-other-{number}@/s"])
        connections.close()

    asyncio.run(awaited())
    with psycopg.connect(database) as conn:
        assert conn.execute("SELECT count(*) FROM outbox.events").fetchone() == (30,)
    nothing_is_left(database, via)
