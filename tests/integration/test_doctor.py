"""`dovecote relay doctor` finds what is wrong with an outbox, and changes nothing."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from dovecote.devstack import Stack
from outbox import Event
from outbox.schema import Roles, install
from outbox.schema.capture import installed as installed_capture
from outbox.schema.capture import use_table, use_wal
from tests.support.commands import doctor
from tests.support.crews import new_role
from tests.support.fix_stack import MakeTopic
from tests.support.load import load
from tests.support.relaying import Relays, agrees, commit, event, installed, published, relays
from tests.support.waiting import patient


@pytest.fixture
def fleet(stack: Stack, database: str, tmp_path: Path) -> Iterator[Relays]:
    with relays(tmp_path, database, stack.kafka.bootstrap) as started:
        yield started


def told(fleet: Relays, level: str) -> list[str]:
    """Return the findings of a level."""
    lines = doctor(fleet).stdout.splitlines()
    return [line[6:] for line in lines if line.startswith(f"{level:4}  ")]


def test_an_outbox_is_followed_from_nothing_to_one_that_works(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    nothing = doctor(fleet)
    assert (nothing.returncode, nothing.stderr) == (1, "")
    assert "is not installed; run `dovecote init outbox`" in nothing.stdout
    installed(fleet.dsn)
    before = doctor(fleet)
    assert before.returncode == 0
    assert "warn  no relay is active; run `dovecote relay run`" in before.stdout
    relay = fleet.active()
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 1)
    done = doctor(fleet, "--json")
    assert done.returncode == 0, done.stdout
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    (unsafe,) = (each["what"] for each in findings if each["level"] != "ok")
    assert "the server has fsync = off" in unsafe, "the servers of tests are not for keeps"
    assert any("the active relay is at 127.0.0.1" in finding["what"] for finding in findings)
    with psycopg.connect(fleet.dsn) as conn:
        conn.execute("SELECT outbox.confirm('old', '1:1:', NULL, 0)")
    _, gone = sorted(told(fleet, "warn"), key=lambda line: "no relay runs" in line)
    assert "no relay runs under old, which has published" in gone
    # Neither it nor anything else was fenced.
    commit(fleet.dsn, event(name, 2))
    published(fleet, name, 2)
    assert "fenced" not in relay.log
    assert relay.terminate() == 0


def test_a_relay_that_goes_on_meanwhile_has_nothing_wrong(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    installed(fleet.dsn, "wal")
    fleet.active(capture="wal")
    with load(fleet.dsn, name) as running:
        for _ in range(5):
            running.goes_on(20)
            found = doctor(fleet, capture="wal")
            assert (found.returncode, found.stderr) == (0, ""), found.stdout
    agrees(fleet, name)


def test_each_state_of_the_log_is_told(fleet: Relays) -> None:
    installed(fleet.dsn)
    (slot,) = use_wal(fleet.dsn, "outbox")
    assert any("and nobody reads it" in line for line in told(fleet, "warn"))
    assert told(fleet, "fail") == []
    use_table(fleet.dsn, "outbox")
    with psycopg.connect(fleet.dsn) as late:
        late.execute("SELECT 1")
        assert any("may still write to the log" in line for line in told(fleet, "warn"))
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    (missing,) = told(fleet, "fail")
    assert "is missing" in missing
    assert "--accept-gap" in missing
    with psycopg.connect(fleet.dsn) as conn:
        assert installed_capture(conn, "outbox").state == "leaving"


def test_what_resolves_it_is_about_the_schema_of_the_relay(fleet: Relays) -> None:
    with psycopg.connect(fleet.dsn) as conn:
        install(conn, "shop")
    (slot,) = use_wal(fleet.dsn, "shop")
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    command = "`dovecote init outbox --schema shop --capture wal --accept-gap`"
    assert command in doctor(fleet, schema="shop").stdout
    relay = fleet.start(schema="shop")
    assert relay.wait() == 1
    assert command in relay.log


def test_servers_that_are_away_are_told_and_the_other_is_looked_at(fleet: Relays) -> None:
    installed(fleet.dsn)
    away = doctor(fleet, bootstrap="127.0.0.1:1")
    assert away.returncode == 1
    assert "fail  Kafka: " in away.stdout
    assert away.stderr == ""
    assert "events are read from the table" in away.stdout
    elsewhere = doctor(fleet, dsn="host=127.0.0.1 port=1 connect_timeout=2")
    assert elsewhere.returncode == 1
    assert "fail  Postgres: " in elsewhere.stdout
    assert "the broker allows transactions" in elsewhere.stdout


def test_a_topic_that_would_forget_progress_is_told(fleet: Relays, topic: MakeTopic) -> None:
    installed(fleet.dsn)
    found = doctor(fleet, progress_topic=topic(1))
    assert found.returncode == 1
    assert "has cleanup.policy=delete" in found.stdout
    assert "has 2 partitions" in doctor(fleet, progress_topic=topic(2)).stdout


def test_a_role_that_lacks_a_right_is_told_what_grants_it(fleet: Relays) -> None:
    installed(fleet.dsn)
    with (
        new_role(fleet.dsn) as (role, own),
        psycopg.connect(fleet.dsn, autocommit=True) as conn,
    ):
        (line,) = [
            line for line in doctor(fleet, dsn=own).stdout.splitlines() if line[:4] == "fail"
        ]
        assert "EXECUTE on settle_shards, INSERT on parked, " in line
        assert f"`dovecote init outbox --relay-role {role}`" in line
        install(conn, roles=Roles(relays=[role]))
        assert f"ok    role {role} has the rights of a relay" in doctor(fleet, dsn=own).stdout
        conn.execute(f"REVOKE EXECUTE ON FUNCTION outbox.confirm FROM {role}".encode())
        found = doctor(fleet, dsn=own).stdout
        assert f"warn  role {role} lacks EXECUTE on confirm: published rows may stay" in found
        conn.execute(f"REVOKE EXECUTE ON FUNCTION outbox.settle_shards FROM {role}".encode())
        assert f"fail  role {role} lacks EXECUTE on settle_shards" in doctor(fleet, dsn=own).stdout


def test_a_relay_that_ended_before_its_first_progress_has_published_nothing(
    fleet: Relays,
) -> None:
    with psycopg.connect(installed(fleet.dsn), autocommit=True) as conn:
        # As a relay leaves it that is killed between its claim and its first progress.
        conn.execute("SELECT outbox.renew_claim(%s, NULL, NULL, NULL, 0, NULL, 0)", [fleet.name])
    assert told(fleet, "fail") == []
    assert f"outbox {fleet.name!r} has not published anything yet" in told(fleet, "ok")
    # The relay itself begins there.
    fleet.active()


def test_a_clock_is_told_while_it_is_wrong_and_not_after_that(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    installed(fleet.dsn)
    relay = fleet.active()
    assert relay.terminate() == 0
    producer = Producer({"bootstrap.servers": fleet.bootstrap})
    ahead = int((time.time() + 1_800) * 1_000)
    progress = f"dovecote.progress.{fleet.name}"
    producer.produce(progress, key="another", value="{}", timestamp=ahead)
    assert producer.flush(patient(10)) == 0
    (wrong,) = (line for line in told(fleet, "warn") if "clock" in line)
    assert wrong.startswith("the newest record of progress is 1")
    # The relay's clock has been set right, and newer progress says so.
    fleet.active()
    for number in range(3):
        commit(fleet.dsn, event(name, number))
        published(fleet, name, number + 1)
    assert [line for line in told(fleet, "warn") if "clock" in line] == []


def test_bad_settings_are_bad_usage(fleet: Relays) -> None:
    assert doctor(fleet, capture="both").returncode == 2


def test_it_tells_what_waits_in_the_log_before_anything_was_published(
    fleet: Relays, topic: MakeTopic
) -> None:
    installed(fleet.dsn)
    use_wal(fleet.dsn, "outbox")
    commit(fleet.dsn, Event(topic=topic(1), type="Grown", source="/tests", value=bytes(100_000)))
    (behind,) = [line for line in told(fleet, "ok") if "after progress" in line]
    number, _, rest = behind.partition(" ")
    assert int(number.replace(",", "")) > 100_000
    assert rest == "bytes of the log are after progress"
