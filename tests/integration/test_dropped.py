"""An outbox that was dropped, or restored without its data, is reported as such."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo

from outbox import schema
from outbox.schema.capture import use_table
from outbox.schema.slots import drop
from relay.errors import Outage
from relay.kafka.progress_topic import ProgressTopic
from relay.postgres.capture.catalog import running
from tests.support.commands import copied, doctor
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.relaying import Relays, commit, event, installed, published, relays
from tests.support.waiting import patient, until


@pytest.fixture
def fleet(database: str, stack: Servers, tmp_path: Path) -> Iterator[Relays]:
    with relays(tmp_path, installed(database, "wal"), stack.kafka.bootstrap) as started:
        yield started


def test_a_schema_that_is_dropped_under_a_relay_of_the_log_is_said_and_its_slot_is_found(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active()
    commit(fleet.dsn, event(name, 0))
    published(fleet, name, 1)
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute("DROP SCHEMA outbox CASCADE")
        assert relay.wait(within=40) == 1
        assert "the outbox in schema 'outbox' was dropped or is not whole" in relay.log
        assert "Traceback" not in relay.log
        ((slot,),) = conn.execute(
            "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
        )
        says = f"warn  replication slot {slot} holds back the write-ahead log, and its outbox was"
        assert says in doctor(fleet).stdout
        # The next outbox is another one, and has a slot of its own.
        installed(fleet.dsn, "wal")
        found = doctor(fleet).stdout
        assert says in found
        assert f"SELECT pg_drop_replication_slot('{slot}')" in found
        drop(conn, slot)
        assert "its outbox was dropped" not in doctor(fleet).stdout


def test_a_dump_without_data_is_told_from_an_outbox_that_is_not_installed(
    fleet: Relays, stack: Servers
) -> None:
    with new_database(stack) as restored:
        copied(fleet.dsn, restored, "--schema-only")
        relay = fleet.start(dsn=restored)
        assert relay.wait() == 1
        assert "was restored without its data" in relay.log
        assert "fail" in doctor(fleet, dsn=restored).stdout
        assert "was restored without its data" in doctor(fleet, dsn=restored).stdout
        with psycopg.connect(restored, autocommit=True) as conn:
            for table in ("migrations", "reading"):
                copied(fleet.dsn, restored, "--data-only", "--table", f"outbox.{table}")
            conn.execute("UPDATE outbox.reading SET state = 'table'")
            schema.require(conn)
        again = fleet.start(dsn=restored)
        assert again.wait() == 1
        assert "outbox.identity is empty: the outbox was restored without its data" in again.log
        assert "Traceback" not in again.log


def test_the_log_is_not_left_before_a_writer_on_a_replication_connection_has_ended(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active()
    commit(fleet.dsn, event(name, 0))
    published(fleet, name, 1)
    replicating = make_conninfo(fleet.dsn, replication="database")
    with (
        psycopg.connect(replicating, autocommit=True) as late,
        psycopg.connect(fleet.dsn, autocommit=True) as conn,
    ):
        late.execute("BEGIN")
        late.execute(f"SELECT outbox.append('{name}', 'key', '1', 'Counted')".encode())
        use_table(fleet.dsn, "outbox")
        relay.until_logged("leaving the log")
        assert running(conn)
        commit(fleet.dsn, event(name, 2))
        with pytest.raises(AssertionError):
            until(
                lambda: "going on in the table" in relay.log, within=3, what="left", promised=True
            )
        late.execute("COMMIT")
        published(fleet, name, 3)
        relay.until_logged("going on in the table")


def test_a_topic_that_was_just_made_is_not_taken_for_one_that_was_deleted(
    stack: Servers,
) -> None:
    name = f"dovecote.progress.{uuid4().hex}"
    made = ProgressTopic(name, {"bootstrap.servers": stack.kafka.bootstrap}, timeout=patient(5))
    made.ensure()
    # Like a broker that does not know the topic for a moment.
    admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap})
    admin.delete_topics([name])[name].result(patient(30))
    until(
        lambda: name not in admin.list_topics(timeout=patient(10)).topics,
        within=20,
        what="it gone",
    )
    with pytest.raises(Outage, match="it was made a moment ago, and not every broker"):
        made.peek("shop", "")
    found = ProgressTopic(name, {"bootstrap.servers": stack.kafka.bootstrap}, timeout=patient(5))
    with pytest.raises(Outage, match="was it deleted"):
        found.peek("shop", "")
