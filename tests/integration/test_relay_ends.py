"""A relay ends with a reason where it must not go on, and when it is told to."""

import re
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from dovecote.devstack import Stack
from outbox import Event
from tests.support.fix_stack import MakeTopic, new_database
from tests.support.relaying import (
    COMMAND,
    DSN,
    Relays,
    agrees,
    commit,
    committed,
    event,
    ids,
    installed,
    published,
    relays,
    settings,
)
from tests.support.topics import make_topic
from tests.support.waiting import consume, patient, until


def test_another_database_of_the_same_name_is_refused_before_it_fences(
    fleet: Relays, stack: Stack, topic: MakeTopic
) -> None:
    name = topic(1)
    production = fleet.active()
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 1)
    with new_database(stack) as staging:
        commit(installed(staging), event(name, 666))
        clone = fleet.start(dsn=staging)
        assert clone.wait(within=20) == 1
    assert "another database or schema" in clone.log
    assert "a `name` of its own" in clone.log.replace("give this relay a", "a")
    assert "Traceback" not in clone.log
    commit(fleet.dsn, event(name, 2))
    published(fleet, name, 2)
    agrees(fleet, name)
    assert production.log.count("publishing from") == 1, "it was fenced"


def test_progress_that_vanishes_while_it_runs_is_never_taken_for_a_beginning(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    relay = fleet.active(
        transaction_timeout="4s", kafka={"topic.metadata.propagation.max.ms": "500"}
    )
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 1)
    progress = f"dovecote.progress.{fleet.name}"
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
    admin.delete_topics([progress])[progress].result(patient(30))
    commit(fleet.dsn, event(name, 2))
    relay.until_logged("was it deleted? Restore it: a relay started anew refuses")

    def refuses() -> bool:
        answer = relay.get("/readyz")
        return answer.status == 503 and progress in answer.body

    until(refuses, within=10, what="it is not ready, and names the topic")
    # Somebody creates it again, empty.
    make_topic(fleet.bootstrap, progress, cleanup_policy="compact")
    assert relay.wait(within=30) == 1
    assert f"{progress} lost the progress of outbox" in relay.log
    found = ids(consume(fleet.bootstrap, name))
    assert found == committed(fleet.dsn, name)[: len(found)]


def test_a_progress_topic_of_many_partitions_is_refused(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(3)
    relay = fleet.start(progress_topic=name)
    assert relay.wait(within=20) == 1
    assert "has 3 partitions instead of 1; set `progress_topic`" in relay.log


def test_a_progress_topic_that_forgets_is_refused(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1, cleanup_policy="delete")
    relay = fleet.start(progress_topic=name)
    assert relay.wait(within=20) == 1
    assert "cleanup.policy" in relay.log


def test_no_writer_can_forge_progress_wherever_it_is_kept(fleet: Relays, topic: MakeTopic) -> None:
    name, progress = topic(1), topic(1, cleanup_policy="compact")
    relay = fleet.active(progress_topic=progress)
    commit(fleet.dsn, event(name, 1))
    published(fleet, name, 1)
    forged = Event(topic=progress, type="T", key=fleet.name, value={"format": 1})
    commit(fleet.dsn, forged)
    relay.until_logged(f"parked event {forged.id}")
    assert all(
        message.value() != b'{"format":1}' for message in consume(fleet.bootstrap, progress)
    )


def test_a_database_without_an_outbox_is_a_clear_end(
    stack: Stack, tmp_path: Path, database: str
) -> None:
    with relays(tmp_path, database, stack.kafka.bootstrap) as fleet:
        relay = fleet.start()
        assert relay.wait() == 1
    assert "is not installed; run `dovecote init outbox`" in relay.log
    assert "Traceback" not in relay.log


def test_an_outbox_that_vanishes_under_a_relay_ends_it(fleet: Relays) -> None:
    relay = fleet.active()
    with psycopg.connect(fleet.dsn) as conn:
        conn.execute("DROP SCHEMA outbox CASCADE")
    assert relay.wait(within=20) == 1
    assert re.search(
        "in schema 'outbox' was dropped or is not whole; run `dovecote init outbox`", relay.log
    )
    assert "Traceback" not in relay.log


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("speed = 1", "speed: there is no such setting"),
        ('batch_rows = "many"', "batch_rows: must be a whole number"),
        ('lease = "10ms"', "lease: must be at least 1s"),
        ('name = "two words"', "progress_topic: .* is not a Kafka topic name"),
    ],
)
def test_bad_settings_end_it_before_anything_happens(
    tmp_path: Path, extra: str, says: str
) -> None:
    config = tmp_path / "relay.toml"
    config.write_text(f'{extra}\n[kafka]\n"bootstrap.servers" = "h"', encoding="utf-8")
    done = run("relay", "run", "--config", str(config), "--check")
    assert done.returncode == 2
    assert re.search(says, done.stderr), done.stderr


def test_a_property_that_librdkafka_does_not_know_is_found_by_check(tmp_path: Path) -> None:
    config = tmp_path / "relay.toml"
    config.write_text(settings("127.0.0.1:1", kafka={"lingre.ms": "1"}), encoding="utf-8")
    done = run("relay", "run", "--config", str(config), "--check")
    assert (done.returncode, "lingre.ms" in done.stderr) == (2, True), done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(60),
        env={"PATH": "/usr/bin:/bin", DSN: "host=127.0.0.1 port=1"},
    )


def test_sigterm_ends_it_while_both_servers_are_away(tmp_path: Path) -> None:
    with relays(tmp_path, "host=127.0.0.1 port=1", "127.0.0.1:1") as fleet:
        relay = fleet.start()
        relay.until_logged("outage: Postgres")
        assert relay.terminate(within=10) == 0


def test_sigterm_ends_it_while_kafka_is_away(database: str, tmp_path: Path) -> None:
    with relays(tmp_path, installed(database), "127.0.0.1:1") as fleet:
        relay = fleet.start()
        relay.until_logged("active: this relay alone may publish")
        assert relay.terminate(within=10) == 0


def test_sigint_ends_it_too(fleet: Relays) -> None:
    relay = fleet.active()
    relay.signal(signal.SIGINT)
    assert relay.wait(within=10) == 0
