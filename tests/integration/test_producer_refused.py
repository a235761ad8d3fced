"""An event that the database refuses holds no other event of a producer up."""

import psycopg
import pytest

from outbox import Event, NotAccepted
from outbox.producer.producer import Producer
from tests.support.commands import init
from tests.support.crews import Crew
from tests.support.waiting import patient

NOWHERE = {"bootstrap.servers": "127.0.0.1:9"}

TRIGGER = """
    CREATE FUNCTION outbox.no_drafts() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE 'drafts stay here'; END $$;
    CREATE TRIGGER no_drafts BEFORE INSERT ON outbox.events_0
    FOR EACH ROW WHEN (new.type = 'Draft') EXECUTE FUNCTION outbox.no_drafts();
"""


@pytest.fixture
def shop(bare: Crew) -> Crew:
    """A writer of `orders` and `reports`, and a database that refuses large events and drafts."""
    restrict = ("--topics", "orders", "--topics", "reports", "--max-event-bytes", "100000")
    done = init("--dsn", bare.owner, "--writer-role", bare.role("writer"), *restrict)
    assert (done.returncode, done.stderr) == (0, "")
    with psycopg.connect(bare.owner) as conn:
        conn.execute(TRIGGER)
    return bare


def test_what_the_database_refuses_is_refused_alone_with_the_reason(shop: Crew) -> None:
    refused = {
        20: (Event(topic="payments", key="k", type="T"), "may not write to topic 'payments'"),
        50: (Event(topic="reports", key="k", type="T", value=b"x" * 200_000), "200034 bytes"),
        51: (Event(topic="orders", key="k", type="Draft"), "drafts stay here"),
    }
    others = [Event(topic="orders", key="k", type="T", value=n) for n in range(100)]
    sent = [refused[n][0] if n in refused else each for n, each in enumerate(others)]
    with Producer(shop.writer, NOWHERE) as producer:
        promises = [producer.send_soon(each) for each in sent]
        for number, promise in enumerate(promises):
            if number not in refused:
                assert promise.result(patient(20)) == "outbox"
                continue
            with pytest.raises(NotAccepted, match=refused[number][1]):
                promise.result(patient(20))
    with psycopg.connect(shop.owner) as conn:
        rows = conn.execute("SELECT id::text FROM outbox.events ORDER BY position").fetchall()
    assert [id_ for (id_,) in rows] == [e.id for n, e in enumerate(others) if n not in refused]
