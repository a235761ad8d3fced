"""An auditor of the log is killed again and again, while a relay publishes from the log."""

import random
from pathlib import Path

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.audited import Shop, kinds
from tests.support.audited_log import drop_slot
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.relaying import installed, published, relays
from tests.support.waiting import patient, until

KILLS = 12


def test_killed_again_and_again_it_misses_nothing_and_has_no_false_alarm(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path
) -> None:
    dsn = installed(database, capture="wal")
    shop = Shop(dsn, stack.kafka.bootstrap, topic(1), tmp_path)
    shop.extra["state"] = str(tmp_path / "audit.sqlite3")
    file = shop.settings()
    chance = random.Random(7)  # no secret
    with relays(tmp_path, dsn, stack.kafka.bootstrap) as fleet:
        fleet.active(environ={"DOVECOTE_RELAY_WAL__HEARTBEAT": "1s"})
        shop.audit(file, status=3)
        with shop.auditing(file) as auditor:
            for _ in range(KILLS):
                shop.write(150)
                until(lambda: chance.random() < 0.02, within=30, what="some moment")
                auditor.kill()
                shop.write(50)
                auditor.start()
            events = shop.write(20)
            published(fleet, shop.topic, shop.written)
            shop.publish(events[:2])
            auditor.kill()
        told = shop.audit(file)
        assert kinds(told) == sorted(("doubled", each.id) for each in events[:2]), auditor.log
        counts = told["topics"][shop.topic]
        assert (counts["rows"], counts["matched"]) == (shop.written, shop.written)
        assert counts["unjudged"] == 0
        lost = shop.write(5)
        published(fleet, shop.topic, shop.written + 2)
        admin = AdminClient({"bootstrap.servers": shop.bootstrap})
        (deleted,) = admin.delete_records([TopicPartition(shop.topic, 0, OFFSET_END)]).values()
        deleted.result(patient(20))
        found: set[tuple[str, str]] = set()

        def missed() -> bool:
            # The relay confirms what it has passed with its next heartbeat.
            found.update(kinds(shop.audit(file)))
            return found == {("lost", each.id) for each in lost}

        until(missed, within=120, what="the deleted records are missed")
    drop_slot(dsn)
