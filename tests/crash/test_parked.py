"""A relay killed while it parks, requeues and drops loses, doubles and reorders nothing."""

import random
import threading
from contextlib import ExitStack

import psycopg
import pytest

from outbox import Event
from outbox.schema.capture import use_wal
from relay.postgres.desk import EVERYTHING, Desk, Which
from tests.support.load import KEYS, load
from tests.support.relaying import AGREE, Relays, committed, difference, ids, write_known
from tests.support.topics import alter_topic
from tests.support.waiting import consume, until

KILLS = 4
SMALL, LARGE = "3000", "10000"


def write_large(dsn: str, topic: str, chance: random.Random) -> None:
    """Commit an event that is too large for a topic of 3,000 bytes, under its key's lock."""
    with psycopg.connect(dsn) as conn:
        key = chance.choice(KEYS)
        row = conn.execute(
            "UPDATE counters SET n = n + 1 WHERE key = %s RETURNING n", [key]
        ).fetchone()
        number = row[0] - 1 if row else 0
        value = " " * 4_999 + str(number)
        write_known(conn, Event(topic=topic, type="Large", source="/tests", key=key, value=value))


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_killed_again_and_again_it_keeps_what_is_parked_and_the_order_of_each_key(
    fleet: Relays, name: str, capture: str
) -> None:
    if capture == "wal":
        use_wal(fleet.dsn, "outbox")
    chance, pause = random.Random(2013), threading.Event()  # to be repeated, no secret
    given_up: set[str] = set()
    alter_topic(fleet.bootstrap, name, max_message_bytes=SMALL)
    with ExitStack() as stack:
        conn = stack.enter_context(psycopg.connect(fleet.dsn, autocommit=True))
        desk = Desk(conn, "outbox", fleet.name)
        running = stack.enter_context(
            load(fleet.dsn, name, writers=2, pace=0.02, bursts=(1, 1, 2, 5))
        )
        relay = fleet.active(capture=capture, kafka={"compression.type": "none"})
        for kill in range(KILLS):
            # The parked events are refused again, and accepted, by turns.
            limit = LARGE if kill % 3 == 2 else SMALL
            alter_topic(fleet.bootstrap, name, max_message_bytes=limit)
            write_large(fleet.dsn, name, chance)
            before = running.transactions
            until(lambda before=before: running.transactions > before + 10, within=20, what="load")  # type: ignore[misc]  # bound early
            if limit == SMALL:
                until(lambda: desk.count() > 0, within=30, what="something is parked")
            if chance.random() < 0.4:
                for victim in desk.events(EVERYTHING, 1):
                    given_up.add(victim.id)
                    desk.ask("drop", Which([victim.id]))
            desk.ask("requeue", EVERYTHING)
            pause.wait(chance.random() * 0.5)  # at any point of its work
            relay.kill()
            relay = fleet.active(capture=capture, kafka={"compression.type": "none"})
    alter_topic(fleet.bootstrap, name, max_message_bytes=LARGE)
    wanted = committed(fleet.dsn, name)
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        desk = Desk(conn, "outbox", fleet.name)

        def is_settled() -> bool:
            if not desk.are_done(asked[-1]):
                return False
            if desk.count():
                asked.append(desk.ask("requeue", EVERYTHING))
            return set(wanted) - set(ids(consume(fleet.bootstrap, name))) <= given_up

        asked = [desk.ask("requeue", EVERYTHING)]
        until(is_settled, within=60, what="all is published")
        until(lambda: desk.count() == 0, within=20, what="nothing is parked")
    what = difference(wanted, consume(fleet.bootstrap, name))
    assert what.lost <= given_up
    assert what._replace(lost=set()) == AGREE
    assert len(wanted) > 40
