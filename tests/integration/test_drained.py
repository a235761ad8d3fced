"""A writer learns that its events have left the outbox, and never before they have."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from typing import Literal

import psycopg
import pytest

from outbox import schema, write
from outbox.event import Limits
from outbox.producer.fallback import Fallback
from outbox.producer.routing import EVERY
from outbox.schema.capture import use_table, use_wal
from relay.metrics import Metrics
from relay.postgres.capture.catalog import leave_log
from relay.postgres.capture.switching import SwitchingCapture
from relay.postgres.capture.wal import Timing
from relay.postgres.drains import Drains
from relay.postgres.retention import Retention
from relay.rules.places.progress import Cursor, Place
from tests.support.relaying import event, installed
from tests.support.waiting import patient, until

LANE = sha256(b"t\0key").digest()


class Shop:
    """An outbox, a relay's session, and a writer that asks."""

    def __init__(self, dsn: str, capture: SwitchingCapture, conn: psycopg.Connection) -> None:
        self.dsn, self.capture, self.conn = dsn, capture, conn
        self.place: Place = Cursor()
        self.now = 0.0
        self.retention = Retention("outbox", "shop", Metrics("shop"), keep=0.0, every=0.0)
        self.drains = Drains("outbox", "shop", clock=lambda: self.now)
        self.asking = Fallback(dsn, "outbox", Limits())

    def begin(self) -> None:
        self.place = self.capture.resume(None)
        assert self.retention.begin(self.conn, self.place)
        self.drains.begin(self.conn, self.place)

    def publish(self) -> None:
        """Read everything there is, as if the broker took it."""
        for batch in self.capture.batches(self.place):
            self.place = batch.cursor
            self.capture.confirm(batch.cursor)
            self.drains.reached(batch.cursor)
        self.capture.settle(partial(leave_log, self.conn, "outbox"))

    def write(self) -> int:
        return self.asking.write([event("t", 1)])

    def has_drained(self, token: int, lane: bytes = LANE) -> bool:
        answer = self.asking.drained({lane: token}) == [lane]
        self.answer()
        return answer

    def answer(self) -> None:
        """Report what is published, because somebody has asked."""
        self.drains.beat(self.conn)

    def drains_to(self, token: int, lane: bytes = LANE) -> None:
        """Publish and answer until a token has drained."""

        def there() -> bool:
            self.publish()
            return self.has_drained(token, lane)

        until(there, within=15, what="what is published to be known")


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    dsn = installed(database)
    timing = Timing(lease=10, heartbeat=10)
    with (
        closing(
            SwitchingCapture(dsn, "outbox", batch_rows=100, batch_bytes=10**6, timing=timing)
        ) as capture,
        psycopg.connect(dsn, autocommit=True) as conn,
    ):
        made = Shop(dsn, capture, conn)
        yield made
        made.asking.close()


def capture(shop: Shop, which: Literal["table", "wal"]) -> None:
    if which == "wal":
        use_wal(shop.dsn, schema.DEFAULT_SCHEMA)


@pytest.mark.parametrize("which", ["table", "wal"])
def test_it_has_drained_when_it_is_published_and_not_before(
    shop: Shop, which: Literal["table", "wal"]
) -> None:
    capture(shop, which)
    first = shop.write()
    assert not shop.has_drained(first)
    shop.begin()
    for _ in range(3):
        assert not shop.has_drained(first)
    shop.drains_to(first)
    second = shop.write()
    for _ in range(3):
        assert not shop.has_drained(second)
    assert shop.has_drained(first)
    shop.drains_to(second)


@pytest.mark.parametrize("which", ["table", "wal"])
def test_a_transaction_without_events_has_drained_when_those_before_it_have(
    shop: Shop, which: Literal["table", "wal"]
) -> None:
    capture(shop, which)
    shop.begin()
    shop.write()
    token = shop.asking.token()
    for _ in range(3):
        assert not shop.has_drained(token, EVERY)
    shop.drains_to(token, EVERY)


def test_a_transaction_that_is_open_meanwhile_neither_drains_nor_delays_others(shop: Shop) -> None:
    shop.begin()
    with psycopg.connect(shop.dsn) as late:
        write(late, event("t", 0))
        row = late.execute("SELECT pg_current_xact_id()::text").fetchone()
        assert row is not None
        shop.drains_to(shop.write())
        assert not shop.has_drained(int(row[0]))
    assert not shop.has_drained(int(row[0]))
    shop.drains_to(int(row[0]))


@pytest.mark.parametrize("look", ["tick", "answer"])
def test_a_look_that_waits_for_an_upgrade_to_let_go_of_the_events_holds_no_other_table(
    shop: Shop, look: Literal["tick", "answer"]
) -> None:
    shop.begin()
    shop.drains_to(shop.write())
    shop.write()
    waiting = "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
    with (
        psycopg.connect(shop.dsn) as upgrade,
        psycopg.connect(shop.dsn, autocommit=True) as watch,
        ThreadPoolExecutor(1) as pool,
    ):
        # Like each of them does.
        upgrade.execute("LOCK TABLE outbox.events IN ACCESS EXCLUSIVE MODE")
        looking = pool.submit(shop.publish if look == "tick" else shop.answer)
        until(
            lambda: watch.execute(waiting, ["outbox.events"]).fetchone() == (1,),
            within=10,
            what="the look to wait",
        )
        upgrade.execute("LOCK TABLE outbox.reading IN ACCESS EXCLUSIVE MODE")
        upgrade.rollback()
        looking.result(patient(10))


def test_switches_there_and_back_make_nothing_drain_too_early(shop: Shop) -> None:
    shop.begin()
    tokens = [shop.write()]
    use_wal(shop.dsn, schema.DEFAULT_SCHEMA)
    tokens.append(shop.write())
    assert [shop.has_drained(token) for token in tokens] == [False, False]
    for token in tokens:
        shop.drains_to(token)
    tokens = [shop.write()]
    use_table(shop.dsn, schema.DEFAULT_SCHEMA)
    tokens.append(shop.write())
    assert [shop.has_drained(token) for token in tokens] == [False, False]
    for token in tokens:
        shop.drains_to(token)


def test_what_is_parked_of_a_key_has_not_drained(shop: Shop) -> None:
    shop.begin()
    token = shop.write()
    shop.drains_to(token)
    shop.conn.execute(
        "INSERT INTO outbox.parked (name, number, position, id, time, topic, type, source, key,"
        " code, reason, holds) VALUES ('shop', 1, 1, gen_random_uuid(), now(), 't', 'T', 's',"
        " 'key', 'C', 'R', true)"
    )
    assert not shop.has_drained(token)
    assert shop.has_drained(token, sha256(b"t\0other").digest())
    assert shop.asking.parked(10) == [LANE]
    shop.conn.execute("DELETE FROM outbox.parked")
    assert shop.has_drained(token)
    assert shop.asking.parked(10) == []


def test_every_relay_has_to_have_published_it(shop: Shop) -> None:
    shop.begin()
    token = shop.write()
    shop.drains_to(token)
    shop.conn.execute("SELECT outbox.confirm('another', '1:1:', NULL, 0)")
    assert not shop.has_drained(token)


def test_what_a_copy_of_the_database_says_counts_for_nothing(shop: Shop) -> None:
    shop.begin()
    token = shop.write()
    shop.drains_to(token)
    shop.conn.execute("UPDATE outbox.relays SET drained_in = 'another server/1'")
    assert not shop.has_drained(token)


def test_a_relay_answers_quickly_while_it_is_asked_and_else_writes_nothing(shop: Shop) -> None:
    shop.begin()
    shop.has_drained(shop.write())
    assert shop.drains.beat(shop.conn) == 0.1
    shop.now += 60
    assert shop.drains.beat(shop.conn) == float("inf")
    shop.publish()
    (before,) = shop.conn.execute("SELECT xmin::text FROM outbox.relays").fetchall()
    shop.drains.beat(shop.conn)
    (after,) = shop.conn.execute("SELECT xmin::text FROM outbox.relays").fetchall()
    assert after == before


def test_lists_of_different_lengths_are_refused(shop: Shop) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="different lengths"):
        shop.conn.execute("SELECT outbox.drained('{1}', '{}')")
    assert shop.conn.execute("SELECT outbox.drained('{}', '{}')").fetchone() == ([],)
