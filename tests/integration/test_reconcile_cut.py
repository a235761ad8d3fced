"""A reconciliation that was cut short is done again, and nobody goes on before that."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dovecote.devstack.kafka.kafka import Kafka
from dovecote.devstack.places import temporary_directory
from dovecote.devstack.postgres.postgres import server_user
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import (
    AGREE,
    committed,
    difference,
    drained,
    fill,
    installed,
    on_kafka,
    published,
    relays,
)
from tests.support.restoring import CUTS, Volume, cut_short, reconcile
from tests.support.waiting import patient

ACCEPT = "--accept-restored"


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
