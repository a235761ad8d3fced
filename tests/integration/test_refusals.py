"""The relay refuses to go on: it says why, and how to resolve it."""

from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from outbox import schema
from outbox.errors import SchemaMissing
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.postgres.connect import connect
from tests.support.commands import copied
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.relaying import Relays, commit, event, ids, installed, published, relays
from tests.support.waiting import consume, patient, until


@pytest.mark.parametrize(("timeout", "seconds"), [("16m", 960), ("2h", 7200)])
def test_a_transaction_timeout_that_the_broker_does_not_allow_is_named(
    fleet: Relays, timeout: str, seconds: int
) -> None:
    relay = fleet.start(transaction_timeout=timeout)
    assert relay.wait() == 1
    assert f"`transaction_timeout` of {seconds} s is longer than this broker allows" in relay.log
    assert "raise the broker's transaction.max.timeout.ms" in relay.log
    assert "Traceback" not in relay.log


def test_progress_that_vanished_while_no_relay_ran_is_no_beginning(
    fleet: Relays, topic: MakeTopic
) -> None:
    name, progress = topic(1), f"dovecote.progress.{fleet.name}"
    relay = fleet.active()
    commit(fleet.dsn, event(name, 0))
    published(fleet, name, 1)
    assert relay.terminate() == 0
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.delete_topics([progress])[progress].result(patient(30))
    until(
        lambda: progress not in admin.list_topics(timeout=patient(10)).topics,
        within=20,
        what="the topic gone",
    )
    for made_anew in (False, True):
        if made_anew:
            config = {"cleanup.policy": "compact"}
            admin.create_topics([NewTopic(progress, 1, 1, config=config)])[progress].result(
                patient(30)
            )
        relay = fleet.start()
        assert relay.wait() == 1
        assert f"progress topic {progress} of this Kafka knows nothing of it" in relay.log
        assert "give this relay a `name` of its own if that is wanted" in relay.log
        assert (progress in admin.list_topics(timeout=patient(10)).topics) == made_anew
    assert len(consume(fleet.bootstrap, name)) == 1
    fleet.active(name=fleet.name + "-anew")
    first, again = ids(published(fleet, name, 2))
    assert first == again


def test_a_restored_dump_is_refused_and_goes_on_under_a_name_of_its_own(
    fleet: Relays, stack: Servers, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active()
    commit(fleet.dsn, event(name, 0), event(name, 1))
    published(fleet, name, 2)
    assert relay.terminate() == 0
    with new_database(stack) as restored:
        copied(fleet.dsn, restored)
        refused = fleet.start(dsn=restored)
        assert refused.wait() == 1
        assert "made by another database or schema of this server" in refused.log
        assert "give this relay a `name` of its own" in refused.log
        fleet.active(dsn=restored, name=fleet.name + "-restored")
        found = ids(published(fleet, name, 4))
    assert found[2:] == found[:2]


def test_a_dump_brings_no_place_of_the_log_that_it_was_made_beside(
    fleet: Relays, stack: Servers, topic: MakeTopic
) -> None:
    name = topic(1)
    use_wal(fleet.dsn, "outbox")
    use_table(fleet.dsn, "outbox")
    with new_database(stack) as restored:
        copied(fleet.dsn, restored)
        # As if it had been far ahead, on another server.
        with psycopg.connect(restored, autocommit=True) as conn:
            conn.execute("UPDATE outbox.reading SET state = 'table', begins_at = 'FF/0'")
        commit(restored, event(name, 0))
        for count in (1, 2):
            relay = fleet.active(dsn=restored)
            published(fleet, name, count)
            assert relay.terminate() == 0
            commit(restored, event(name, count))


def test_what_was_restored_without_its_data_is_told_and_touched_no_further(
    fleet: Relays, stack: Servers
) -> None:
    with new_database(stack) as restored:
        copied(fleet.dsn, restored, "--schema-only")
        relay = fleet.start(dsn=restored)
        assert relay.wait() == 1
        with psycopg.connect(restored) as conn:
            says = "the schema of the outbox, was restored without its data"
            with pytest.raises(SchemaMissing, match=says):
                schema.install(conn)


def test_a_message_that_no_version_wrote_is_refused_with_what_resolves_it(
    database: str, stack: Servers, tmp_path: Path, topic: MakeTopic
) -> None:
    name = topic(1)
    with relays(tmp_path, installed(database, "wal"), stack.kafka.bootstrap) as fleet:
        relay = fleet.active()
        commit(fleet.dsn, event(name, 0))
        published(fleet, name, 1)
        with psycopg.connect(fleet.dsn) as conn:
            conn.execute(
                "SELECT pg_logical_emit_message(true, prefix, '\\x07'::bytea) FROM outbox.capture"
            )
        for ended in (relay, fleet.start()):
            assert ended.wait() == 1
            assert "what this version does not understand (an event of format 7" in ended.log
            assert "--accept-gap" in ended.log
            assert "Traceback" not in ended.log


def test_a_database_of_unknown_characters_is_refused(
    database: str, stack: Servers, tmp_path: Path
) -> None:
    name = f"{conninfo_to_dict(database)['dbname']}_ascii"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as admin:
        admin.execute(
            f"CREATE DATABASE {name} ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0".encode()
        )
        try:
            dsn = installed(make_conninfo(stack.postgres.dsn, dbname=name))
            with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
                relay = fleet.start()
                assert relay.wait() == 1
                assert f"database {name} has the encoding SQL_ASCII" in relay.log
                assert "Traceback" not in relay.log
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_timeouts_that_a_database_has_for_others_are_not_ours(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        name = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '20ms'").format(name))
        conn.execute(sql.SQL("ALTER DATABASE {} SET lock_timeout = '20ms'").format(name))
    with connect(database, purpose="test") as conn:
        conn.execute("SELECT pg_sleep(0.1)")
    with connect(f"{database} options='-c statement_timeout=30ms'", purpose="test") as conn:
        assert conn.execute("SHOW statement_timeout").fetchone() == ("30ms",)
        assert conn.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_characters_that_a_role_cannot_show_others_are_published(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        database = sql.Identifier(conn.info.dbname)
        conn.execute(sql.SQL("ALTER DATABASE {} SET client_encoding = 'LATIN1'").format(database))
    relay = fleet.active()
    commit(f"{fleet.dsn} client_encoding=UTF8", event(name, 0, subject="to → the right"))
    (message,) = published(fleet, name, 1)
    assert ("ce_subject", "to → the right".encode()) in (message.headers() or [])
    assert "Traceback" not in relay.log


def test_a_database_that_takes_no_writes_for_now_is_waited_for(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    commit(fleet.dsn, event(name, 0))
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        database = sql.Identifier(conn.info.dbname)
        setting = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        conn.execute(setting.format(database, "on"))
        relay = fleet.start()
        relay.until_logged("in a read-only transaction; nothing is lost, trying again")
        # This session is older.
        conn.execute(setting.format(database, "off"))
    published(fleet, name, 1)
    assert "Traceback" not in relay.log


def test_a_server_that_is_too_old_is_named(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(database, purpose="test") as conn:
        newest = conn.info.server_version // 10_000
    monkeypatch.setattr("relay.postgres.connect.OLDEST", newest + 1)
    needed = f"Postgres {newest} is too old: Dovecote needs Postgres {newest + 1} or newer"
    with pytest.raises(Refused, match=needed):
        connect(database, purpose="test")
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(database, autocommit=True) as conn:
        until(
            lambda: conn.execute(query, ["dovecote relay (test)"]).fetchone() == (0,),
            within=10,
            what="no session left behind",
        )
