"""Everything runs for an owner of a database who is no superuser, as managed servers give it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dedup.consumer import Consumer
from dovecote.devstack import Stack
from dovecote.push.store.tables import Tables
from outbox import Event, schema
from outbox.errors import DovecoteError
from outbox.schema.capture import use_wal
from tests import old_schemas
from tests.support.commands import Done, doctor, init, relay_command
from tests.support.consuming import event as consumed
from tests.support.consuming import produce, settings
from tests.support.crews import new_role
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import Relays, event, published, write_known
from tests.support.waiting import until


@pytest.fixture
def owner(database: str) -> Iterator[str]:
    """Yield the connection string of a role that owns the database, and is no superuser."""
    with new_role(database, "owner", "REPLICATION") as (name, own):
        with psycopg.connect(database, autocommit=True) as conn:
            owns = sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                sql.Identifier(conn.info.dbname), sql.Identifier(name)
            )
            back = sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(
                sql.Identifier(conn.info.dbname)
            )
            conn.execute(owns)
        try:
            yield own
        finally:
            with psycopg.connect(database, autocommit=True) as conn:
                conn.execute(back)


def succeeded(done: Done) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_outbox_is_made_upgraded_relayed_and_looked_at_without_a_superuser(
    owner: str, stack: Stack, tmp_path: Path, topic: MakeTopic
) -> None:
    name = topic(1)
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute(old_schemas.script(old_schemas.OUTBOX).encode())
    with (
        new_role(owner_of_roles(owner, stack), "relay", "REPLICATION") as (relay_role, relay),
        new_role(owner_of_roles(owner, stack), "writer") as (writer_role, writer),
    ):
        given = ("--dsn", owner, "--relay-role", relay_role, "--writer-role", writer_role)
        succeeded(init(*given))
        with psycopg.connect(owner, autocommit=True) as conn:
            conn.execute(
                "CREATE TABLE written (nr bigint GENERATED ALWAYS AS IDENTITY,"
                " id text, topic text)"
            )
            conn.execute(f"GRANT INSERT ON written TO {writer_role}".encode())
        fleet = Relays(tmp_path, relay, stack.kafka.bootstrap)
        try:
            process = fleet.active()
            for written, capture in enumerate(("table", "wal", "table")):
                succeeded(init(*given, "--capture", capture))
                with psycopg.connect(writer) as conn:
                    write_known(conn, event(name, written))
                published(fleet, name, written + 1)
                found = doctor(fleet)
                succeeded(found)
                assert "permission denied" not in found.stdout
                succeeded(relay_command("status", fleet))
            assert "permission denied" not in process.log
            assert process.terminate() == 0
            succeeded(relay_command("reconcile", fleet))
        finally:
            fleet.end()


def owner_of_roles(dsn: str, stack: Servers) -> str:
    """Return a connection string to the same database for the role that makes roles."""
    dbname = conninfo_to_dict(dsn)["dbname"]
    return make_conninfo(stack.postgres.dsn, dbname=str(dbname))


def test_an_inbox_and_push_are_made_and_used_without_a_superuser(
    owner: str, stack: Stack, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, boss, kafka = topic(1), owner_of_roles(owner, stack), stack.kafka.bootstrap
    with (
        new_role(boss, "consumer") as (consumer_role, consumer),
        new_role(boss, "push") as (push_role, push),
    ):
        succeeded(init("--dsn", owner, "--consumer-role", consumer_role, part="inbox"))
        succeeded(init("--dsn", owner, "--push-role", push_role, part="push"))
        with closing(Tables(push)) as tables:
            tables.require()
        given = conninfo_to_dict(consumer)
        monkeypatch.setenv("PGPASSWORD", str(given.pop("password")))
        handled: list[Event] = []

        def handle(each: Event, tx: psycopg.Connection) -> None:
            tx.execute("SELECT 1")
            handled.append(each)

        wanted = settings(kafka, name, inbox={"dsn": make_conninfo("", **given)})
        running = Consumer(wanted, handle)
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            produce(kafka, consumed(name, "k", 1))
            until(lambda: len(handled) == 1, within=30, what="an event is handled")
        finally:
            running.stop()
            thread.join()


def test_a_member_of_a_managed_servers_role_is_let_in_and_the_server_is_asked(
    owner: str, stack: Stack, tmp_path: Path
) -> None:
    boss = owner_of_roles(owner, stack)
    with new_role(boss, "relay") as (role, relay), psycopg.connect(boss, autocommit=True) as conn:
        with psycopg.connect(owner) as own:
            schema.install(own, roles=schema.Roles(relays=[role]))
        with pytest.raises(DovecoteError, match=f'GRANT rds_replication TO "{role}"'):
            use_wal(owner, "outbox")
        if not conn.execute("SELECT FROM pg_roles WHERE rolname = 'rds_replication'").fetchone():
            conn.execute("CREATE ROLE rds_replication")
        # By another role, as groups are on such servers.
        group = f"{role}_group"
        conn.execute(f"CREATE ROLE {group} ROLE {role} IN ROLE rds_replication".encode())
        try:
            use_wal(owner, "outbox")
            fleet = Relays(tmp_path, relay, stack.kafka.bootstrap)
            asked = doctor(fleet)
            # This server does not know what the role stands for, and says so itself.
            assert asked.returncode == 1
            assert f"fail  role {role} cannot read the write-ahead log" in asked.stdout
            assert f'`GRANT rds_replication TO "{role}"`' in asked.stdout
            conn.execute(f"ALTER ROLE {role} REPLICATION".encode())
            assert "cannot read the write-ahead log" not in doctor(fleet).stdout
        finally:
            conn.execute(f"DROP ROLE {group}".encode())
