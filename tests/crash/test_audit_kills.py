"""An auditor that is killed again and again under load finds what there is, and nothing else."""

import random
from pathlib import Path

import psycopg

from outbox import schema
from tests.support.audited import Shop, confirm
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.waiting import until

KILLS = 12


def test_killed_again_and_again_it_finds_each_fault_once_and_no_other(
    stack: Servers, database: str, topic: MakeTopic, tmp_path: Path
) -> None:
    with psycopg.connect(database) as conn:
        schema.install(conn)
    shop = Shop(database, stack.kafka.bootstrap, topic(3), tmp_path)
    state = str(tmp_path / "audit.sqlite3")
    file = shop.settings(state=state)
    chance = random.Random(7)  # no secret
    planted: set[tuple[str, str]] = set()
    with shop.auditing(file) as auditor:
        for _ in range(KILLS):
            events = shop.write(200)
            lost, twice = events[chance.randrange(50)], events[60 + chance.randrange(50)]
            some = [each for each in events if each.id != lost.id]
            at = chance.randrange(len(some))
            shop.publish(some[:at])
            # It asks fifty times a second, so the kill comes at any moment of a second or so.
            until(lambda: chance.random() < 0.02, within=30, what="some moment")
            auditor.kill()
            shop.publish(some[at:])
            shop.publish([twice])
            planted |= {("lost", lost.id), ("doubled", twice.id)}
            confirm(shop)
            auditor.start()
        until(lambda: planted <= found(auditor.told()), within=90, what="all that was planted")
        assert auditor.stop() == 0
        assert found(auditor.told()) == planted, auditor.log


def found(told: list[dict[str, object]]) -> set[tuple[str, str]]:
    return {(str(each["kind"]), str(each["id"])) for each in told if "kind" in each}
