"""
A standby is promoted: the relay goes on if it has everything published, and refuses otherwise.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dovecote.devstack.postgres.postgres import Postgres
from relay.postgres.timeline import shared
from tests.support.commands import init
from tests.support.failover import ROLE, Pair, dsns, paired, promote, until_received
from tests.support.fix_stack import MakeTopic, Servers, new_topics
from tests.support.relaying import Relays, commit, event, ids, published, relays
from tests.support.restoring import reconcile
from tests.support.waiting import consume


def as_role(server: Postgres) -> str:
    return make_conninfo(server.dsn, user=ROLE, password="x")  # noqa: S106  # of this test's role


def test_a_failover_that_lost_nothing_is_gone_through_and_the_old_primary_refused(
    stack: Servers, topic: MakeTopic, tmp_path: Path
) -> None:
    name = topic(1)
    with paired() as pair, relays(tmp_path, pair.primary.dsn, stack.kafka.bootstrap) as fleet:
        first = fleet.active(dsn=as_role(pair.primary))
        commit(pair.primary.dsn, *(event(name, number) for number in range(3)))
        published(fleet, name, 3)
        first.terminate()
        until_received(pair)
        promote(pair)
        commit(pair.standby.dsn, event(name, 3))
        second = fleet.active(dsn=as_role(pair.standby))
        published(fleet, name, 4)
        second.terminate()
        # It comes back as if nothing had happened.
        pair.primary.start()
        commit(pair.primary.dsn, event(name, 666))
        old = fleet.start(dsn=as_role(pair.primary))
        assert old.wait() == 1
        assert "another server was promoted in its place; connect to that one" in old.log
        assert len(ids(consume(fleet.bootstrap, name))) == 4
        only_replication_tells_after_a_restart(pair)


def only_replication_tells_after_a_restart(pair: Pair) -> None:
    dsn, owner = as_role(pair.standby), pair.standby.dsn
    left = shared(owner, old=1, new=2)
    assert left is not None
    assert left > 0
    assert shared(dsn, old=1, new=2) == left
    assert shared(dsn, old=1, new=3) is None, "it was promoted twice, and tells of the last time"
    assert shared(owner, old=7, new=2) == 0, "it never was on that timeline"
    pair.standby.kill()
    pair.standby.start()
    assert shared(dsn, old=1, new=2) is None, "the end of a crash's recovery is another place"
    assert shared(owner, old=1, new=2) == left


class Lossy(NamedTuple):
    """The state after a failover that lost commits of two outboxes, one of each capture."""

    fleet: Relays
    server: Postgres
    topics: dict[str, str]
    dsns: dict[str, str]


@pytest.fixture(scope="module")
def lossy(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    with paired() as pair, new_topics(stack) as topic:
        folder, bootstrap = tmp_path_factory.mktemp("lossy"), stack.kafka.bootstrap
        with relays(folder, pair.primary.dsn, bootstrap) as fleet:
            topics = {capture: topic(1) for capture in ("table", "wal")}
            before = dsns(pair.primary)
            running = [
                fleet.active(dsn=dsn, name=fleet.name + capture, capture=capture)
                for capture, dsn in before.items()
            ]
            until_received(pair)
            pair.standby.stop()
            for number in range(4):
                for capture, dsn in before.items():
                    commit(dsn, event(topics[capture], number))
            for name in topics.values():
                published(fleet, name, 4)
            for relay in running:
                relay.terminate()
            pair.primary.kill()
            pair.standby.start()
            promote(pair)
            yield Lossy(fleet, pair.standby, topics, dsns(pair.standby))


def refused(lost: Lossy, capture: str, dsn: str) -> str:
    """Start the relay of an outbox, and return its message when it ends."""
    relay = lost.fleet.start(dsn=dsn, name=lost.fleet.name + capture, capture=capture)
    assert relay.wait() == 1
    assert "Traceback" not in relay.log
    return relay.log


def test_a_failover_that_lost_commits_is_refused_whoever_asks(lossy: Lossy) -> None:
    owner, topic = lossy.dsns["table"], lossy.topics["table"]
    # Their transactions may have the ids of lost ones, and would be skipped.
    for number in range(4, 12):
        commit(owner, event(topic, number))
    for dsn in (as_role(lossy.server), owner):
        assert "commits were lost: the progress of outbox" in refused(lossy, "table", dsn)
    lost, name = ids(consume(lossy.fleet.bootstrap, topic)), lossy.fleet.name + "table"
    for options in ([], ["--accept-restored"]):
        (said,) = reconcile(lossy.fleet, *options, dsn=as_role(lossy.server), name=name)
        assert "commits were lost" in said["reason"]
        assert (said["ids"], said["to_publish"]) == (lost, 8)
    found = ids(published(lossy.fleet, topic, 4 + 8))
    with psycopg.connect(owner) as conn:
        rows = conn.execute("SELECT id::text FROM outbox.events ORDER BY position").fetchall()
    assert found == [*lost, *(row[0] for row in rows)]
    last = event(topic, 12)
    commit(owner, last)
    lossy.fleet.active(dsn=as_role(lossy.server), name=name)
    assert ids(published(lossy.fleet, topic, 4 + 9))[-1] == last.id


def test_a_log_whose_slot_and_commits_were_lost_goes_on_when_both_are_accepted(
    lossy: Lossy,
) -> None:
    dsn, topic = lossy.dsns["wal"], lossy.topics["wal"]
    assert "commits were lost: the progress of outbox" in refused(lossy, "wal", dsn)
    anew = lossy.fleet.start(dsn=dsn, name=lossy.fleet.name + "next", capture="wal")
    assert anew.wait() == 1
    assert "is missing: it was dropped, or a standby that did not have it was prom" in anew.log
    accept = init("--dsn", dsn, "--capture", "wal", "--accept-gap")
    assert accept.returncode == 0, accept.stderr
    assert "the events that no relay had read from it are given up" in accept.stdout
    said = refused(lossy, "wal", dsn)
    assert "commits were lost: the progress of outbox" in said
    assert "goes on with `--accept-restored`" in said
    name = lossy.fleet.name + "wal"
    (lost,) = reconcile(lossy.fleet, "--accept-restored", dsn=dsn, name=name)
    assert lost["ids"] == ids(consume(lossy.fleet.bootstrap, topic))
    last = event(topic, 4)
    commit(dsn, last)
    lossy.fleet.active(dsn=dsn, name=name, capture="wal")
    assert ids(published(lossy.fleet, topic, 4 + 1))[4:] == [last.id]
