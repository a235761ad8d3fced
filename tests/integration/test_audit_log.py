"""`dovecote audit` of an outbox whose events are in the write-ahead log alone."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from dovecote.audit.rules.ids import first_at, text_of
from outbox import Event, write
from outbox.schema.capture import installed as capture_of
from outbox.schema.capture import use_table
from tests.support.audited import Shop, kinds, publish_with_faults
from tests.support.audited_log import drop_by_command, drop_slot, goes_on, relayed, slot_of
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import installed


@pytest.fixture
def shop(stack: Servers, database: str, topic: MakeTopic, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(installed(database, capture="wal"), stack.kafka.bootstrap, topic(3), tmp_path)
    shop.extra["state"] = str(tmp_path / "audit.sqlite3")
    shop.extra["partitions_since"] = "2020-01-01T00:00:00Z"
    yield shop
    drop_slot(shop.dsn)


def test_the_audit_begins_at_the_first_run_and_goes_on_at_the_next(shop: Shop) -> None:
    shop.publish(shop.write(20))
    relayed(shop.dsn)
    first = shop.audit(status=3)
    assert first["findings"] == []
    assert first["not_audited"][0]["from"] is None
    assert "its audit begins at" in first["troubles"][0]
    shop.publish(shop.write(300))
    relayed(shop.dsn)
    told = shop.audit(status=0)
    counts = told["topics"][shop.topic]
    assert (counts["rows"], counts["matched"], told["not_audited"]) == (300, 300, [])
    again = shop.audit(status=0)["topics"][shop.topic]
    assert (again["rows"], again["records"]) == (0, 0)


def test_planted_faults_are_found_each_by_its_name(shop: Shop) -> None:
    shop.audit(status=3)
    events = shop.write(300)
    # Clocks may differ by a minute, so an id of the first minute may be of before the beginning.
    later = first_at(int(time.time() * 1000) + 120_000) | 7 << 76 | 2 << 62 | 5
    phantom = Event(
        topic=shop.topic, type="Audited", source="/shop", key="key-1", id=text_of(later), value=0
    )
    planted = publish_with_faults(shop, events, phantom)
    shop.publish(shop.write(20))
    relayed(shop.dsn)
    told = shop.audit(status=1)
    found = dict(kinds(told))
    # One of the two is out of order; whether rows or records came first decides which.
    assert found.pop("disordered") in {planted.first.id, planted.second.id}
    assert len(told["findings"]) == 6
    assert found == {
        "lost": planted.lost.id,
        "doubled": planted.twice.id,
        "altered": planted.altered.id,
        "misplaced": planted.misplaced.id,
        "phantom": phantom.id,
    }
    by_kind = {each["kind"]: each for each in told["findings"]}
    assert by_kind["lost"]["places"][0] == "outbox.log/41"
    assert len(by_kind["doubled"]["places"]) == 2


def test_what_no_relay_has_passed_waits_and_is_found_later(shop: Shop) -> None:
    shop.audit(status=3)
    events = shop.write(30)
    told = shop.audit(status=3)
    assert told["findings"] == []
    assert "wait for the relay" in told["troubles"][0]
    shop.publish(events[1:])
    relayed(shop.dsn)
    assert kinds(shop.audit(status=1)) == [("lost", events[0].id)]


def test_aborted_transactions_and_messages_of_others_are_no_rows(shop: Shop) -> None:
    shop.audit(status=3)
    with closing(psycopg.connect(shop.dsn)) as conn:
        conn.execute("SELECT pg_logical_emit_message(true, 'other', 'x')")
        conn.commit()
        write(conn, Event(topic=shop.topic, type="T", source="/s", key="k", value=1))
        conn.rollback()
    shop.publish(shop.write(10))
    relayed(shop.dsn)
    assert shop.audit(status=0)["topics"][shop.topic]["rows"] == 10


@pytest.mark.parametrize("how", ["dropped", "moved", "too much"])
def test_a_gap_is_said_to_be_not_audited_and_nothing_of_it_is_found(shop: Shop, how: str) -> None:
    shop.audit(status=3)
    shop.publish(shop.write(20))
    relayed(shop.dsn)
    shop.audit(status=0)
    unseen, late = shop.write(20), shop.write(5)
    shop.publish(unseen[3:])
    if how == "dropped":
        drop_slot(shop.dsn)
    with psycopg.connect(shop.dsn, autocommit=True) as conn:
        if how == "moved":
            conn.execute(
                "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", [slot_of(shop.dsn)]
            )
        if how == "too much":
            shop.extra["slot_bytes"] = 1_000_000
            conn.execute("SELECT pg_logical_emit_message(true, 'other', repeat('x', 2000000))")
    told = shop.audit(status=3)
    (gap,) = told["not_audited"]
    assert gap["from"] < gap["to"]
    assert any(": not audited from" in each for each in told["troubles"])
    assert told["findings"] == []
    # A relay publishes what was written in the gap, after the gap.
    goes_on(shop, late)


def test_a_capture_from_the_table_again_drops_the_slot_and_goes_on(shop: Shop) -> None:
    shop.audit(status=3)
    shop.publish(shop.write(20))
    relayed(shop.dsn)
    shop.audit(status=0)
    use_table(shop.dsn, "outbox")
    with psycopg.connect(shop.dsn, autocommit=True) as conn:
        # A relay that has left the log says so.
        changed = capture_of(conn, "outbox").changed
        conn.execute("SELECT outbox.leave_log(%s::text::xid8, 0, 1)", [changed])
        assert capture_of(conn, "outbox").state == "table"
    told = shop.audit(status=3)
    assert told["findings"] == []
    assert any("captured from its table" in each for each in told["troubles"])
    with psycopg.connect(shop.dsn) as conn:
        query = "SELECT FROM pg_replication_slots WHERE slot_name = %s"
        assert conn.execute(query, [slot_of(shop.dsn)]).fetchone() is None
    shop.publish(shop.write(20))
    assert shop.audit(status=0)["topics"][shop.topic]["matched"] == 20


def test_a_role_without_rights_is_told_which_it_needs(shop: Shop) -> None:
    role = f"auditor_{shop.topic.replace('-', '_').replace('.', '_')}"
    name = sql.Identifier(role)
    with psycopg.connect(shop.dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'audit'").format(name))
        try:
            conn.execute(sql.SQL("GRANT USAGE ON SCHEMA outbox TO {}").format(name))
            conn.execute(
                sql.SQL(
                    "GRANT SELECT ON outbox.events, outbox.relays, outbox.parked, outbox.reading,"
                    " outbox.identity TO {}"
                ).format(name)
            )
            theirs = Shop(shop.dsn, shop.bootstrap, shop.topic, shop.folder, extra=shop.extra)
            theirs.dsn = psycopg.conninfo.make_conninfo(shop.dsn, user=role, password="audit")  # noqa: S106  # of this test alone
            told = theirs.audit(status=3)
            assert any("GRANT SELECT ON" in each for each in told["troubles"]), told
            conn.execute(sql.SQL("GRANT SELECT ON outbox.capture TO {}").format(name))
            told = theirs.audit(status=3)
            assert any(f'ALTER ROLE "{role}" REPLICATION' in each for each in told["troubles"])
            conn.execute(sql.SQL("ALTER ROLE {} REPLICATION").format(name))
            assert "its audit begins" in theirs.audit(status=3)["troubles"][0]
        finally:
            conn.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(name))


def test_the_slot_is_dropped_by_a_command(shop: Shop) -> None:
    shop.audit(status=3)
    assert "is dropped" in drop_by_command(shop)
    assert "there is no slot" in drop_by_command(shop)


def test_without_a_state_file_it_says_that_it_needs_one(shop: Shop) -> None:
    del shop.extra["state"]
    told = shop.audit(status=3)
    assert any("audit.state" in each for each in told["troubles"])
