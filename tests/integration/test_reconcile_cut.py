"""A reconciliation that was cut short is done again, and nobody goes on before that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from dovecote.process.settings import load
from outbox import Event
from relay.kafka.publisher import PublisherInTurn
from relay.operating.reconcile import Accepted, _Reconciler
from relay.operating.reconcile import reconcile as in_process
from relay.postgres.claims import Claim
from relay.settings import PREFIX, RelaySettings
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.parking import listed, parked
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
    settings,
)
from tests.support.restoring import Volume, reconcile
from tests.support.topics import alter_topic
from tests.support.waiting import consume, patient, until

ACCEPT = "--accept-restored"
UNCOMPRESSED = {"compression.type": "none"}


class Cut(Exception):
    """It ends the command at a place of our choice, as a kill does."""


def cut_short(
    fleet: Relays, where: str, monkeypatch: pytest.MonkeyPatch, *, restored: bool
) -> None:
    """Accept the difference in this process, as far as `where`."""

    def cut(*_: object, **__: object) -> None:
        raise Cut

    owner, name = CUTS[where]
    config = fleet.folder / "cut.toml"
    config.write_text(settings(fleet.bootstrap, name=fleet.name, retention="1h"))
    loaded = load(RelaySettings, config, prefix=PREFIX, environ={DSN: fleet.dsn})
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, cut)
        with pytest.raises(Cut):
            list(in_process(loaded, Accepted(restored=restored, cluster=not restored)))


CUTS: Mapping[str, tuple[type[Any], str]] = {
    "before its first record": (PublisherInTurn, "publish"),
    "after its first record": (_Reconciler, "_publish"),
    "before it lets relays go on": (_Reconciler, "_finish"),
    "before it names the cluster": (Claim, "move"),
}


@pytest.mark.parametrize("where", CUTS)
def test_no_relay_begins_anew_where_it_was_cut_short(
    where: str,
    stack: Servers,
    topic: MakeTopic,
    tmp_path: Path,
    files: Volume,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, dsn = topic(2), installed(files.dsn)
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        relay = fleet.active()
        # The database has no mark yet, so all that it has is in doubt afterwards.
        fill(dsn, name, 20)
        published(fleet, name, 20)
        copy = files.snapshot()
        fill(dsn, name, 10, first=20)
        published(fleet, name, 30)
        relay.kill()
        files.put_back(copy)
        fill(dsn, name, 10, first=50)
        lost = set(on_kafka(fleet, name)) - set(committed(dsn, name))
        cut_short(fleet, where, monkeypatch, restored=True)
        if where != "before it names the cluster":
            refused = fleet.start()
            assert refused.wait() == 1
            assert "dovecote relay reconcile" in refused.log
            assert reconcile(fleet, ACCEPT)[0]["done"]
        relay = fleet.active()
        fill(dsn, name, 5, first=70)
        found = difference([*committed(dsn, name), *lost], drained(fleet, name))
        assert found == AGREE
        relay.terminate()


@pytest.mark.parametrize("where", CUTS)
def test_another_cluster_is_not_taken_for_complete_where_it_was_cut_short(
    where: str,
    stack: Servers,
    topic: MakeTopic,
    tmp_path: Path,
    files: Volume,
    monkeypatch: pytest.MonkeyPatch,
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
        # A second relay leaves a mark behind all of them.
        fleet.active(retention="1h").terminate()
        there = AdminClient({"bootstrap.servers": other.bootstrap})
        there.create_topics([NewTopic(name, 1, 1)])[name].result(patient(30))
        fleet.bootstrap = other.bootstrap
        cut_short(fleet, where, monkeypatch, restored=False)
        refused = fleet.start()
        assert refused.wait() == 1
        assert "--accept-cluster" in refused.log
        (said,) = reconcile(fleet, "--accept-cluster", retention="1h")
        assert said["done"]
        fleet.active(retention="1h")
        fill(dsn, name, 5, first=20)
        assert difference(committed(dsn, name), drained(fleet, name)) == AGREE


def test_parked_events_hold_their_keys_after_a_move_that_was_cut_short_and_given_up(
    stack: Servers,
    topic: MakeTopic,
    tmp_path: Path,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, dsn = topic(1, max_message_bytes="3000"), installed(database)
    folder = temporary_directory(server_user())
    with (
        Kafka(folder / "kafka", temporary=True) as other,
        relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet,
    ):
        relay = fleet.active(retention="1h", kafka=UNCOMPRESSED)
        large = Event(topic=name, type="Large", key="bad", value=" " * 5_000)
        behind, good = event(name, 1, key="bad"), event(name, 0, key="good")
        commit(dsn, large, behind, good)
        until(lambda: len(listed(fleet)) == 2, within=30, what="two are parked")
        assert relay.terminate() == 0
        there = AdminClient({"bootstrap.servers": other.bootstrap})
        small = NewTopic(name, 1, 1, config={"max.message.bytes": "3000"})
        there.create_topics([small])[name].result(patient(30))
        fleet.bootstrap = other.bootstrap
        cut_short(fleet, "before it lets relays go on", monkeypatch, restored=False)
        fleet.bootstrap = stack.kafka.bootstrap
        # The events of the old cluster may be fewer than those that the command has parked.
        refused = fleet.start(retention="1h", kafka=UNCOMPRESSED)
        assert refused.wait() == 1
        assert ACCEPT in refused.log
        assert reconcile(fleet, ACCEPT, retention="1h")[0]["done"]
        fleet.active(retention="1h", kafka=UNCOMPRESSED)
        later = event(name, 2, key="bad")
        commit(dsn, later)
        until(lambda: len(listed(fleet)) == 3, within=30, what="its key is still held")
        alter_topic(fleet.bootstrap, name, max_message_bytes="10000")
        done = parked(fleet, "requeue", large.id, "--wait")
        assert (done.returncode, done.stdout) == (0, "requeued 3 events\n"), done.stderr
        found = ids(consume(fleet.bootstrap, name))
        assert found == [good.id, large.id, behind.id, later.id]
