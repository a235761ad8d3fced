"""A relay that reads the log, as operators run it: set up, switched over, refused, watched."""

import json
import re
import subprocess

import psycopg

from outbox.schema.capture import installed as installed_capture
from outbox.schema.capture import use_wal
from tests.support.commands import init
from tests.support.fix_stack import MakeTopic
from tests.support.load import load
from tests.support.relaying import (
    COMMAND,
    DSN,
    Relays,
    agrees,
    commit,
    event,
    published,
    write_known,
)
from tests.support.waiting import patient, until


def test_an_outbox_without_a_table_is_set_up_published_and_watched(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    done = init("--capture", "wal", DOVECOTE_DSN=fleet.dsn)
    assert done.returncode == 0, done.stderr
    assert re.search(r"write-ahead log, which slot dovecote_\d+_\d+ holds back", done.stdout)
    relay = fleet.active(capture="wal")
    for number in range(50):
        commit(fleet.dsn, event(name, number))
    agrees(fleet, name)
    with psycopg.connect(fleet.dsn) as conn:
        assert conn.execute("SELECT count(*) FROM outbox.events").fetchone() == (0,)
    until(
        lambda: "dovecote_relay_slot_retained_bytes{" in relay.get("/metrics").body,
        within=10,
        what="the slot's metric",
    )
    config = fleet.folder / "relay-0/relay.toml"

    def shown() -> str:
        done = subprocess.run(
            [COMMAND, "relay", "status", "--json", "-c", str(config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=patient(60),
            env={"PATH": "/usr/bin:/bin", DSN: fleet.dsn},
        )
        return done.stdout if done.returncode == 0 else ""

    said = json.loads(until(shown, within=10, what="all is well"))
    assert said["lag_rows"] is None
    assert said["lag_bytes"] >= 0
    assert relay.terminate() == 0


def switch(fleet: Relays, capture: str) -> None:
    done = init("--capture", capture, DOVECOTE_DSN=fleet.dsn)
    assert done.returncode == 0, done.stderr


def slots(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        slot = installed_capture(conn, "outbox").slot
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
        (count,) = conn.execute(query, [slot]).fetchone() or (0,)
        return int(count)


def test_a_live_outbox_is_switched_there_and_back_without_loss_doubling_or_reordering(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    relay = fleet.active()
    with load(fleet.dsn, name) as running:
        published(fleet, name, 200)
        for times in (1, 2):
            switch(fleet, "wal")
            relay.until_logged("going on in the log", times=times)
            running.goes_on(50)
            switch(fleet, "table")
            relay.until_logged("going on in the table", times=times)
            until(lambda: slots(fleet.dsn) == 0, within=10, what="the slot dropped")
            running.goes_on(50)
    agrees(fleet, name)
    assert "outage" not in relay.log
    assert relay.terminate() == 0
    insists = fleet.start(capture="wal")
    assert insists.wait() == 1
    assert "are in the table, not in the write-ahead log" in insists.log


def test_the_log_is_not_left_before_who_may_write_to_it_has_ended(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    use_wal(fleet.dsn, "outbox")
    relay = fleet.active()
    with psycopg.connect(fleet.dsn) as late:
        write_known(late, event(name, 1, key="late"))
        switch(fleet, "table")
        relay.until_logged("leaving the log as soon as")
        for number in range(3):
            commit(fleet.dsn, event(name, number))
        # Nothing waits for it.
        published(fleet, name, 3)
        assert "going on in the table" not in relay.log
        assert slots(fleet.dsn) == 1
        late.commit()
        relay.until_logged("going on in the table")
    commit(fleet.dsn, event(name, 3))
    agrees(fleet, name)
    until(lambda: slots(fleet.dsn) == 0, within=10, what="the slot dropped")


def test_a_wish_that_is_taken_back_leaves_the_relay_in_the_log(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    use_wal(fleet.dsn, "outbox")
    relay = fleet.active()
    with psycopg.connect(fleet.dsn) as late:
        write_known(late, event(name, 1, key="late"))
        switch(fleet, "table")
        commit(fleet.dsn, event(name, 0))
        relay.until_logged("leaving the log as soon as")
        switch(fleet, "wal")
        commit(fleet.dsn, event(name, 1))
        late.commit()
    agrees(fleet, name)

    def is_back() -> bool:
        # It may have gone already; then it comes back.
        went, came = (relay.log.count(f"going on in the {place}") for place in ("table", "log"))
        return came == went + 1

    until(is_back, within=10, what="the relay in the log")
    assert slots(fleet.dsn) == 1


def test_a_slot_beyond_its_budget_is_dropped_and_that_is_said(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    use_wal(fleet.dsn, "outbox")
    environ = {
        "DOVECOTE_RELAY_WAL__WARN_BYTES": "1000",
        "DOVECOTE_RELAY_WAL__STOP_BYTES": "1000000",
        # Longer than the test, so that nothing else frees the log.
        "DOVECOTE_RELAY_WAL__HEARTBEAT": "300s",
    }
    relay = fleet.active(capture="wal", environ=environ)
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 1)
    with psycopg.connect(fleet.dsn, autocommit=True) as holder, holder.transaction():
        # An open transaction that has written keeps the log in which it began.
        holder.execute("SELECT pg_logical_emit_message(true, 'x', 'open')")
        with psycopg.connect(fleet.dsn, autocommit=True) as conn:
            conn.execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 3000000))")
        assert relay.wait(within=30) == 1
    assert "more than wal.warn_bytes (1,000)" in relay.log
    assert re.search(r"more than wal.stop_bytes \(1,000,000\), and was dropped", relay.log)
    with psycopg.connect(fleet.dsn) as conn:
        slot = installed_capture(conn, "outbox").slot
        left = conn.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", [slot])
        assert left.fetchone() is None
    again = fleet.start(capture="wal")
    assert again.wait() == 1
    assert "--accept-gap" in again.log


def test_a_name_that_began_when_the_log_had_been_left_goes_on_after_any_trouble(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    use_wal(fleet.dsn, "outbox")
    first = fleet.active()
    commit(fleet.dsn, event(name, 0))
    published(fleet, name, 1)
    assert init("--capture", "table", DOVECOTE_DSN=fleet.dsn).returncode == 0
    first.until_logged("going on in the table")
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 2)
    assert first.terminate() == 0
    own = fleet.active(name=f"{fleet.name}-own")
    commit(fleet.dsn, event(name, 2))
    # The table's events come again under the new name, and then the new ones.
    published(fleet, name, 4)
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'dovecote relay (read)'"
            " AND datname = current_database()"
        )
    own.until_logged("publishing from", times=2)
    assert own.terminate() == 0
    again = fleet.active(name=f"{fleet.name}-own")
    commit(fleet.dsn, event(name, 3))
    published(fleet, name, 5)
    # When the log is wanted again, it begins after all of that.
    assert init("--capture", "wal", DOVECOTE_DSN=fleet.dsn).returncode == 0
    again.until_logged("going on in the log")
    commit(fleet.dsn, event(name, 4))
    found = [int(message.value() or b"") for message in published(fleet, name, 6)]
    assert found == [0, 1, 1, 2, 3, 4]


def test_the_switch_is_refused_without_a_server_to_switch(database: str) -> None:
    for arguments in (
        ["--print-sql", "--capture", "wal"],
        ["--accept-gap"],
        ["--shard", "1", "--capture", "wal"],
    ):
        done = init(*arguments, DOVECOTE_DSN=database)
        assert done.returncode == 2
        assert re.search("--capture|--accept-gap", done.stderr)
