"""`dovecote audit` reports no loss where servers forget, and says what it cannot compare."""

import json
import re
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from outbox import schema
from tests.support.audited import Running, Shop, confirm, kinds
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import installed
from tests.support.topics import remake_topic
from tests.support.waiting import patient, until


@pytest.fixture
def shop(stack: Servers, database: str, topic: MakeTopic, tmp_path: Path) -> Shop:
    with psycopg.connect(database) as conn:
        schema.install(conn)
    return Shop(database, stack.kafka.bootstrap, topic(1), tmp_path)


def delete(shop: Shop, before: int) -> None:
    """Delete the first records of the topic."""
    admin = AdminClient({"bootstrap.servers": shop.bootstrap})
    for each in admin.delete_records([TopicPartition(shop.topic, 0, before)]).values():
        each.result(patient(20))


def get(auditor: Running, path: str) -> str:
    with urlopen(f"{auditor.url()}{path}", timeout=patient(5)) as answer:  # noqa: S310  # our own
        return str(answer.read().decode())


def state(auditor: Running) -> str:
    """Return its state; none if it is not ready."""
    try:
        return str(json.loads(get(auditor, "/readyz"))["state"])
    except HTTPError as error:
        error.close()
        return ""


def matched(auditor: Running) -> float:
    text = get(auditor, "/metrics")
    return sum(map(float, re.findall(r'dovecote_audit_compared{.*what="matched"} (\S+)', text)))


def test_records_that_retention_deleted_are_not_lost_and_others_are(
    shop: Shop, topic: MakeTopic
) -> None:
    events = shop.write(20)
    shop.publish(events)
    confirm(shop)
    delete(shop, 3)
    assert kinds(shop.audit(status=1)) == sorted(("lost", each.id) for each in events[:3])
    shop.topic = topic(1, retention_ms="1000")
    shop.publish(shop.write(20))
    confirm(shop)
    delete(shop, 5)
    told = shop.audit(shop.settings(accepted=[each.id for each in events]), status=0)
    assert told["topics"][shop.topic]["unjudged"] == 5


def test_a_topic_that_was_made_anew_has_lost_nothing(shop: Shop) -> None:
    shop.extra["http.port"] = 0
    file = shop.settings(state=str(shop.folder / "audit.sqlite3"))
    with shop.auditing(file) as auditor:
        shop.publish(shop.write(30))
        confirm(shop)
        until(lambda: matched(auditor) == 30, within=40, what="all are matched")
        until(lambda: state(auditor) == "working", within=20, what="it works")
        auditor.kill()
        unseen = shop.write(10)
        shop.publish(unseen)
        remake_topic(shop.bootstrap, shop.topic)
        auditor.start()
        until(lambda: "made anew" in auditor.log, within=40, what="the auditor knows of it")
        shop.publish(shop.write(5))
        confirm(shop)
        until(lambda: matched(auditor) == 35, within=40, what="the new ones are matched")
        assert auditor.stop() == 0
        assert [each for each in auditor.told() if "kind" in each] == [], auditor.log
    assert shop.audit(file, status=0)["topics"][shop.topic]["unjudged"] == 10


def test_events_in_the_write_ahead_log_are_said_to_be_not_compared(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path
) -> None:
    shop = Shop(installed(database, capture="wal"), stack.kafka.bootstrap, topic(1), tmp_path)
    shop.publish(shop.write(5))
    told = shop.audit(status=3)
    assert told["findings"] == []
    assert any("write-ahead log" in each for each in told["troubles"]), told


def test_a_statement_that_a_kill_left_unwritten_is_written_once(shop: Shop) -> None:
    statements = shop.folder / "statements.jsonl"
    file = shop.settings(state=str(shop.folder / "audit.sqlite3"), statements=str(statements))
    shop.publish(shop.write(10))
    confirm(shop)
    first = shop.audit(file, status=0)
    assert [json.loads(each) for each in statements.read_text().splitlines()] == [first]
    # A directory in the place of the file keeps it from being written, as a full disk does.
    statements.rename(shop.folder / "kept")
    statements.mkdir()
    second = shop.audit(file)
    statements.rmdir()
    (shop.folder / "kept").rename(statements)
    with statements.open("a") as half:
        half.write(json.dumps(second)[:40])
    third = shop.audit(file, status=0)
    assert [json.loads(each) for each in statements.read_text().splitlines()] == [
        first,
        second,
        third,
    ]
    assert second["topics"][shop.topic]["rows"] == 0
