"""`dovecote audit` finds planted faults, and nothing where there is none."""

import uuid
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from outbox import Event, schema, write
from tests.support.audited import Shop, confirm, kinds, publish_with_faults
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import patient


@pytest.fixture
def shop(stack: Servers, database: str, topic: MakeTopic, tmp_path: Path) -> Shop:
    with psycopg.connect(database) as conn:
        schema.install(conn)
    return Shop(database, stack.kafka.bootstrap, topic(3), tmp_path)


def test_a_stream_without_faults_is_clean(shop: Shop) -> None:
    shop.publish(shop.write(500))
    told = shop.audit(status=0)
    counts = told["topics"][shop.topic]
    assert (counts["rows"], counts["records"], counts["matched"]) == (500, 500, 500)
    assert (told["findings"], told["troubles"], told["open"]["rows"]) == ([], [], 0)


def test_planted_faults_are_found_each_by_its_name(shop: Shop) -> None:
    events = shop.write(300)
    phantom = Event(topic=shop.topic, type="Audited", source="/shop", key="key-1", value={"n": -1})
    planted = publish_with_faults(shop, events, phantom)
    rest = shop.write(20)
    # The relay's own table says that all of it is published.
    shop.publish(rest)
    confirm(shop)
    file = shop.settings(partitions_since="2020-01-01T00:00:00Z")
    told = shop.audit(file, status=1)
    assert kinds(told) == sorted(
        [
            ("lost", planted.lost.id),
            ("doubled", planted.twice.id),
            ("disordered", planted.first.id),
            ("altered", planted.altered.id),
            ("misplaced", planted.misplaced.id),
            ("phantom", phantom.id),
        ]
    )
    by_kind = {each["kind"]: each for each in told["findings"]}
    assert by_kind["lost"]["key"] == planted.lost.key
    assert len(by_kind["doubled"]["places"]) == 2
    assert all(each["do"] for each in told["findings"])


def test_an_event_that_no_relay_has_passed_is_waiting_and_not_lost(shop: Shop) -> None:
    shop.publish(shop.write(50))
    confirm(shop)
    shop.write(5)
    told = shop.audit(status=3)
    assert told["findings"] == []
    assert "wait for the relay" in told["troubles"][0]


def test_aborted_and_foreign_records_and_copies_are_no_findings(shop: Shop) -> None:
    events = shop.write(60)
    shop.publish(events)
    shop.publish(events[:5], headers=[("dovecote_attempt", b"2"), ("dovecote_round", b"1")])
    aborting = Producer({"bootstrap.servers": shop.bootstrap, "transactional.id": shop.topic})
    aborting.init_transactions(patient(60))
    aborting.begin_transaction()
    aborting.produce(shop.topic, b"x", b"key-1", headers=[("ce_id", events[0].id.encode())])
    aborting.flush(patient(30))
    aborting.abort_transaction(patient(60))
    plain = Producer({"bootstrap.servers": shop.bootstrap})
    plain.produce(shop.topic, b"x", b"k")
    plain.produce(shop.topic, b"x", b"k", headers=[("ce_id", b"order/7")])
    plain.produce(shop.topic, None, b"k")
    plain.flush(patient(30))
    told = shop.audit(status=0)
    counts = told["topics"][shop.topic]
    assert (counts["copies"], counts["foreign"], counts["matched"]) == (5, 3, 60)


def test_ids_of_any_version_and_one_id_in_two_topics_are_compared(
    shop: Shop, topic: MakeTopic
) -> None:
    other = topic(1)
    with psycopg.connect(shop.dsn) as conn:
        made = [
            Event(topic=name, type="T", source=source, key="k", value=b"v", id=str(id_))
            for id_ in (uuid.uuid4(), uuid.uuid5(uuid.NAMESPACE_URL, "x"))
            for name in (shop.topic, other)
            for source in ("/a", "/b")
        ]
        write(conn, *made)
        # A request that was repeated: two rows of one id are two records.
        write(conn, made[0])
    for each in [*made, made[0]]:
        shop.publish([each], topic=each.topic)
    told = shop.audit(status=0)
    assert told["topics"][other]["matched"] == 4
    assert told["topics"][shop.topic]["matched"] == 5


def test_a_producer_of_others_can_be_named_or_ignored(shop: Shop) -> None:
    shop.publish(shop.write(10))
    theirs = [Event(topic=shop.topic, type="T", source="/other", key="k") for _ in range(3)]
    shop.publish(theirs)
    assert len(kinds(shop.audit(status=1))) == 3
    assert shop.audit(shop.settings(foreign="ignore"), status=0)["findings"] == []
    named = shop.audit(shop.settings(foreign_sources=["/other"]), status=0)
    assert named["topics"][shop.topic]["foreign"] == 3
    accepted = shop.audit(shop.settings(accepted=[each.id for each in theirs]), status=0)
    assert accepted["findings"] == []
