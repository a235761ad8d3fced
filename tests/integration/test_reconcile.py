"""A restored database's losses are reported; what Kafka lacks is published, and no more."""

import os
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from outbox.schema.capture import use_wal
from tests.support.commands import relay_command
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import (
    AGREE,
    DSN,
    Relays,
    commit,
    committed,
    difference,
    drained,
    event,
    fill,
    ids,
    installed,
    on_kafka,
    published,
    relays,
)
from tests.support.restoring import Volume, asked, reconcile
from tests.support.waiting import consume, patient, until

ACCEPT = "--accept-restored"


@contextmanager
def writing(dsn: str, topic: str, first: int) -> Iterator[list[int]]:
    """Commit a few events again and again; yield the number of the next one."""
    stop, numbers = threading.Event(), [first]

    def write() -> None:
        while not stop.is_set():
            try:
                fill(dsn, topic, 10, first=numbers[0])
            except psycopg.Error:
                return
            numbers[0] += 10
            stop.wait(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield numbers
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("capture", "seed"), [("table", 0), ("table", 1), ("wal", 2)])
def test_its_loss_is_counted_exactly_as_it_was_said(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume, capture: str, seed: int
) -> None:
    chance = random.Random(seed)  # no secret
    name, dsn = topic(3), installed(files.dsn, capture)
    lost: set[str] = set()
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        number = 0
        for _ in range(2):
            relay = fleet.active()
            wait = threading.Event().wait
            with writing(dsn, name, number) as numbers:
                wait(chance.uniform(0.1, 3))
                copy = files.snapshot()
                wait(chance.choice([0.05, 0.3, 1, 7]))
                if chance.random() < 0.5:
                    relay.kill()
            relay.end()
            number = numbers[0] + 10
            files.put_back(copy)
            seen, known = set(on_kafka(fleet, name)), set(committed(dsn, name))
            now_lost = seen - known - lost
            lost |= now_lost
            if chance.random() < 0.7:
                fill(dsn, name, chance.choice([1, 70, 400]), first=number)
                number += 400
            if now_lost:
                again = fleet.start()
                assert again.wait() == 1
            known = set(committed(dsn, name))
            for options in ([], ["--accept-restored"]):
                (said,) = reconcile(fleet, *options)
                assert (set(said["ids"]), said["missing_here"]) == (now_lost, len(now_lost))
                assert said["to_publish"] == len(known - seen)
                assert said["published_already"] <= len(known & seen)
                if not options:
                    assert set(on_kafka(fleet, name)) == seen
            found = difference(known | lost, consume(fleet.bootstrap, name))
            assert found == AGREE
        with_relay = fleet.active()
        fill(dsn, name, 10, first=number)
        drained(fleet, name)
        found = difference([*committed(dsn, name), *lost], consume(fleet.bootstrap, name))
        assert found == AGREE
        with_relay.terminate()


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_parked_events_keep_their_order_and_what_was_requeued_is_parked_no_more(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume, capture: str
) -> None:
    name, dsn = topic(1), installed(files.dsn, capture)
    made, missing = f"made-{uuid4().hex}", f"missing-{uuid4().hex}"
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active(park_after="0s")
        for place in (made, missing):
            commit(dsn, event(place, 1, key="a"), event(place, 2, key="a"))
        commit(dsn, event(name, 1))
        published(fleet, name, 1)
        until(lambda: len(parked(dsn)) == 4, within=30, what="four are parked")
        copy = files.snapshot()
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap})
        admin.create_topics([NewTopic(made, 1, 1)])[made].result(patient(30))
        requeue(fleet, made)
        commit(dsn, event(made, 3, key="a"), event(missing, 3, key="a"))
        published(fleet, made, 3)
        until(lambda: len(parked(dsn)) == 3, within=30, what="what was requeued is gone")
        relay.terminate()
        before = committed(dsn, made)
        files.put_back(copy)
        later = event(made, 4, key="a")
        commit(dsn, later, event(missing, 4, key="a"))
        for options in ([], [ACCEPT]):
            (said,) = reconcile(fleet, *options, park_after="0s")
            assert said["ids"] == [before[2]]
            assert (said["to_publish"], said["to_park"]) in {(1, 1), (1, 3)}
            assert said["published_already"] in {2, 3}
        assert on_kafka(fleet, made) == [*before, later.id]
        assert parked(dsn) == committed(dsn, missing)
        admin.create_topics([NewTopic(missing, 1, 1)])[missing].result(patient(30))
        fleet.active(park_after="0s")
        requeue(fleet, missing)
        assert ids(drained(fleet, missing)) == committed(dsn, missing)
        admin.delete_topics([made, missing])


def test_what_operators_asked_of_parked_events_is_left_to_the_relay(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume
) -> None:
    name, dsn = topic(1), installed(files.dsn, "table")
    small, admin = (
        f"small-{uuid4().hex}",
        AdminClient({"bootstrap.servers": stack.kafka.bootstrap}),
    )
    config = {"max.message.bytes": "1000"}
    admin.create_topics([NewTopic(small, 1, 1, config=config)])[small].result(patient(30))
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active(park_after="0s")
        large = (replace(event(small, n, key=f"k{n}"), value=os.urandom(5_000)) for n in range(3))
        commit(dsn, *large)
        until(lambda: len(parked(dsn)) == 3, within=30, what="three are parked")
        relay.terminate()
        # The database has a mark now that lies after what is parked.
        fleet.active(park_after="0s").terminate()
        requeue(fleet, small, wait=False)
        asked_for = requests(dsn)
        assert asked_for
        copy = files.snapshot()
        relay = fleet.active(park_after="0s")
        until(lambda: not requests(dsn), within=30, what="the relay has tried")
        commit(dsn, event(name, 1))
        published(fleet, name, 1)
        relay.terminate()
        files.put_back(copy)
        (said,) = reconcile(fleet, ACCEPT, park_after="0s")
        assert said["missing_here"] == 1
        assert requests(dsn) == asked_for
        fleet.active(park_after="0s")
        until(lambda: not requests(dsn), within=30, what="the relay has obeyed")
        admin.delete_topics([small])


def requests(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT number FROM outbox.parked_commands ORDER BY number").fetchall()
        return [row[0] for row in rows]


def parked(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("SELECT id::text FROM outbox.parked ORDER BY number").fetchall()
        return [row[0] for row in rows]


def requeue(fleet: Relays, topic: str, *, wait: bool = True) -> None:
    waits = ("--wait",) if wait else ()
    done = relay_command("parked", fleet, "requeue", "--topic", topic, *waits, bootstrap="any")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_each_shard_is_told_and_accepted_by_itself(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume, capture: str
) -> None:
    name, dsn = topic(2), installed(files.dsn)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        if capture == "wal":
            use_wal(dsn, "outbox")
            assert relay_command("reshard", fleet, shards=2).returncode == 0
        crew = [fleet.start(shards=2) for _ in range(2)]
        fill(dsn, name, 50)
        published(fleet, name, 50)
        copy = files.snapshot()
        fill(dsn, name, 70, first=50)
        published(fleet, name, 120)
        for relay in crew:
            relay.kill()
        files.put_back(copy)
        fill(dsn, name, 100, first=200)
        lost = set(on_kafka(fleet, name)) - set(committed(dsn, name))
        assert len(lost) == 70
        for options in ([], [ACCEPT]):
            said = reconcile(fleet, *options, shards=2)
            assert [each["name"][-8:] for each in said] == [".shard-0", ".shard-1"]
            assert {id_ for each in said for id_ in each["ids"]} == lost
            assert sum(each["missing_here"] for each in said) == 70
            assert sum(each["to_publish"] for each in said) == 100
        found = difference([*committed(dsn, name), *lost], consume(fleet.bootstrap, name))
        assert found == AGREE
        crew = [fleet.active(shards=2) for _ in range(2)]
        fill(dsn, name, 10, first=400)
        drained(fleet, name)


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_it_is_done_again_however_it_was_interrupted(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume, mode: str
) -> None:
    name, dsn = topic(2), installed(files.dsn)
    more: Any = {"mode": mode, "batch_rows": 50}
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active(mode=mode)
        fill(dsn, name, 50)
        published(fleet, name, 50)
        copy = files.snapshot()
        fill(dsn, name, 70, first=50)
        published(fleet, name, 120)
        relay.terminate()
        files.put_back(copy)
        fill(dsn, name, 5_000, first=200)
        lost = set(on_kafka(fleet, name)) - set(committed(dsn, name))
        again, began = 0, False
        for delay in (0.8, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3):
            with (fleet.folder / "log").open("ab") as log:
                doing = subprocess.Popen(
                    asked(fleet, ACCEPT, **more), env={**os.environ, DSN: dsn}, stderr=log
                )
            # Nobody else does it meanwhile, and no relay begins.
            waiting = fleet.start(mode=mode)
            threading.Event().wait(delay)
            doing.kill()
            doing.wait()
            log_of = (fleet.folder / "log").read_text()
            waiting.end()
            if began := "publishing from" in waiting.log:
                break  # it was done, and a relay that is killed repeats what it likes
            assert "Traceback" not in log_of
            again += 1
        assert again > 0
        assert reconcile(fleet, ACCEPT, **more)[0]["done"]
        found = difference([*committed(dsn, name), *lost], consume(fleet.bootstrap, name))
        if mode == "at_least_once":
            assert began or len(found.doubled) <= 100 * (again + 1)
            found = found._replace(doubled=set())
        assert found == AGREE
        fleet.active(mode=mode)
        fill(dsn, name, 10, first=9_000)
        drained(fleet, name)


def test_a_database_that_was_put_back_to_before_its_relay_is_accepted_too(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume
) -> None:
    name, dsn = topic(1), installed(files.dsn)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        fill(dsn, name, 5)
        copy = files.snapshot()
        relay = fleet.active()
        fill(dsn, name, 5, first=5)
        published(fleet, name, 10)
        relay.kill()
        files.put_back(copy)
        assert fleet.start().wait() == 1
        fill(dsn, name, 50, first=20)
        for options in ([], [ACCEPT]):
            (said,) = reconcile(fleet, *options)
            assert (said["published_already"], said["to_publish"]) == (5, 50)
            assert said["missing_here"] == 5
        fleet.active()
        fill(dsn, name, 1, first=70)
        found = difference([*committed(dsn, name), *said["ids"]], drained(fleet, name))
        assert found == AGREE


def test_another_cluster_takes_the_place_of_the_first_when_that_is_accepted(
    stack: Servers, topic: MakeTopic, tmp_path: Path, files: Volume
) -> None:
    name, dsn = topic(1), installed(files.dsn)
    folder = temporary_directory(server_user())
    with (
        Kafka(folder / "kafka", temporary=True) as other,
        relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet,
    ):
        relay = fleet.active(retention="1h")
        fill(dsn, name, 20)
        published(fleet, name, 20)
        relay.terminate()
        there = AdminClient({"bootstrap.servers": other.bootstrap})
        there.create_topics([NewTopic(name, 1, 1)])[name].result(patient(30))
        fleet.bootstrap = other.bootstrap
        refused = fleet.start()
        assert refused.wait() == 1
        assert "is published to the Kafka cluster" in refused.log
        assert "--accept-cluster" in refused.log
        for options in ([], ["--accept-cluster"]):
            (said,) = reconcile(fleet, *options, retention="1h")
            assert (said["published_already"], said["to_publish"]) == (0, 20)
            assert "is published to the Kafka cluster" in said["reason"]
        relay = fleet.active(retention="1h")
        fill(dsn, name, 5, first=20)
        assert difference(committed(dsn, name), drained(fleet, name)) == AGREE
        relay.terminate()
        fleet.bootstrap = stack.kafka.bootstrap
        assert fleet.start().wait() == 1
