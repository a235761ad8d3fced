"""An outbox is itself to Kafka: no name and no cluster is mistaken for another."""

from collections import Counter

import psycopg
import pytest

from relay.errors import Refused
from tests.support.fix_stack import MakeTopic, Servers, new_database
from tests.support.relayed import running
from tests.support.relaying import Relays, commit, event, ids, installed
from tests.support.shards import wanted
from tests.support.waiting import consume, until

EVENTS = 300


def test_an_outbox_with_a_number_in_its_name_takes_nothing_from_a_shard(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(2)
    shards, other = wanted(fleet, 2), wanted(fleet, 1, name=f"{fleet.name}-1")
    with running([shards, shards, other]):
        for number in range(EVENTS):
            commit(fleet.dsn, event(name, number, key=f"k{number % 9}"))
        found = Counter[str]()

        def all_have_come() -> bool:
            found.clear()
            found.update(ids(consume(fleet.bootstrap, name)))
            return len(found) == EVENTS and min(found.values()) == 2

        until(all_have_come, within=60, what="each event from the shards and from the other")
    # Two names publish the table twice, and neither more than once.
    assert set(Counter(ids(consume(fleet.bootstrap, name))).values()) == {2}


def test_another_cluster_is_refused_by_its_id(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    with running([wanted(fleet, 1)]):
        commit(fleet.dsn, event(name, 1))
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute("UPDATE outbox.claims SET cluster = 'the-original'")
        with (
            pytest.raises(Refused, match="is published to the Kafka cluster the-original"),
            running([wanted(fleet, 1)]),
        ):
            pass
        conn.execute("UPDATE outbox.claims SET cluster = NULL")
    with running([wanted(fleet, 1)]):
        commit(fleet.dsn, event(name, 2))
        until(lambda: len(consume(fleet.bootstrap, name)) == 2, within=30, what="both events")


def test_two_databases_with_one_name_have_transactional_ids_of_their_own(
    stack: Servers, fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    with new_database(stack) as dsn:
        other = Relays(fleet.folder, installed(dsn), fleet.bootstrap)
        apart = wanted(
            other, 1, name=fleet.name, progress_topic=topic(1, cleanup_policy="compact")
        )
        with running([wanted(fleet, 1), apart]):
            for number in range(20):
                commit(fleet.dsn, event(name, number))
                commit(other.dsn, event(name, number, key="theirs"))
            until(lambda: len(consume(fleet.bootstrap, name)) == 40, within=30, what="all events")
