"""A producer sends to Kafka itself, and through the outbox when that is in doubt."""

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Literal

import psycopg
import pytest

from outbox import BadSettings, Event, InvalidEvent, schema
from outbox.errors import NotAccepted, ProducerClosed
from outbox.producer.producer import Options, Producer
from outbox.schema.capture import use_table, use_wal
from tests.support.fix_stack import MakeTopic
from tests.support.parking import listed, parked
from tests.support.relaying import Relays, difference, ids
from tests.support.sending import Sent, doubtful
from tests.support.topics import alter_topic
from tests.support.waiting import consume, patient, until

NOWHERE = {"bootstrap.servers": "127.0.0.1:9"}
NO_DATABASE = "host=127.0.0.1 port=9 dbname=none"


def agrees(fleet: Relays, topic: str, sent: Sent) -> None:
    """Check that everything accepted is there, once or again with its id, and in order."""
    found = difference(sent.accepted, consume(fleet.bootstrap, topic))
    assert (found.lost, found.out_of_order) == (set(), [])
    assert found.invented == set()


def drained(producer: Producer) -> None:
    until(lambda: producer.state.lanes == 0, within=15, what="keys back at Kafka")


def test_events_go_to_kafka_while_it_answers(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(2)
    with doubtful(fleet) as producer:
        sent = Sent(producer, name)
        assert [sent.one(), sent.one("other"), sent.one()] == ["kafka"] * 3
    assert ids(consume(fleet.bootstrap, name)) != []
    agrees(fleet, name, sent)


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_an_ambiguous_send_goes_through_the_outbox_with_the_same_id_and_the_key_comes_back(
    fleet: Relays, topic: MakeTopic, capture: Literal["table", "wal"]
) -> None:
    name = topic(2)
    if capture == "wal":
        use_wal(fleet.dsn, schema.DEFAULT_SCHEMA)
    with doubtful(fleet) as producer:
        sent = Sent(producer, name)
        assert (sent.one(), sent.one("other")) == ("kafka", "kafka")
        producer.doubt.set()
        assert sent.one() == "outbox"
        producer.doubt.clear()
        until(lambda: producer.state.broker == "up", within=10, what="another producer")
        # No relay has published it, so the next event must not overtake it.
        assert (sent.one(), sent.one("other")) == ("outbox", "kafka")
        fleet.active()
        drained(producer)
        assert sent.one() == "kafka"
    records = consume(fleet.bootstrap, name)
    agrees(fleet, name, sent)
    (twice,) = [id_ for id_, times in Counter(ids(records)).items() if times > 1]
    assert sent.accepted[twice] == "outbox"


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_key_that_is_never_quiet_comes_back_too(
    fleet: Relays, topic: MakeTopic, capture: str
) -> None:
    name = topic(1)
    if capture == "wal":
        use_wal(fleet.dsn, schema.DEFAULT_SCHEMA)
    fleet.active()
    stop = threading.Event()
    with doubtful(fleet) as producer:
        sent = Sent(producer, name)
        load = threading.Thread(target=sent.load, args=(1, stop))
        load.start()
        try:
            producer.doubt.set()
            until(lambda: producer.state.lanes == 1, within=10, what="the way through the outbox")
            producer.doubt.clear()
            drained(producer)
        finally:
            stop.set()
            load.join()
        assert sent.one("k0") == "kafka"
    agrees(fleet, name, sent)


def test_switches_of_the_capture_do_not_let_a_key_come_back_too_early(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(2)
    relay = fleet.active()
    stop = threading.Event()
    with doubtful(fleet) as producer:
        sent = Sent(producer, name)
        load = threading.Thread(target=sent.load, args=(5, stop))
        load.start()
        try:
            for switch, said in ((use_wal, "going on in the log"), (use_table, "in the table")):
                producer.doubt.set()
                until(lambda: producer.state.lanes > 0, within=10, what="the outbox")
                switch(fleet.dsn, schema.DEFAULT_SCHEMA)
                producer.doubt.clear()
                relay.until_logged(said)
                drained(producer)
        finally:
            stop.set()
            load.join()
    assert set(sent.accepted.values()) == {"kafka", "outbox"}
    agrees(fleet, name, sent)


def test_a_key_of_which_something_is_parked_stays_with_the_outbox(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1, max_message_bytes="2000")
    fleet.active(kafka={"compression.type": "none"})
    with doubtful(fleet, kafka={"compression.type": "none"}) as producer:
        sent = Sent(producer, name)
        assert (sent.one(), sent.one("other")) == ("kafka", "kafka")
        large = Event(topic=name, type="T", key="key", value=b"x" * 3000)
        assert producer.send(large) == "outbox"
        until(lambda: listed(fleet), within=15, what="a parked event")
        until(lambda: sent.one("other") == "kafka", within=15, what="the other key at Kafka")
        assert sent.one() == "outbox"
        alter_topic(fleet.bootstrap, name, max_message_bytes="100000")
        assert parked(fleet, "requeue", "--topic", name, "--key", "key").returncode == 0
        drained(producer)
        assert sent.one() == "kafka"
    records = [each for each in consume(fleet.bootstrap, name) if len(each.value() or b"") < 100]
    found = difference(sent.accepted, records)
    assert (found.lost, found.out_of_order) == (set(), [])


def test_a_new_producer_waits_for_what_an_earlier_one_left_in_the_outbox(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    with doubtful(fleet) as first:
        sent = Sent(first, name)
        first.doubt.set()
        assert sent.one() == "outbox"
    with doubtful(fleet, Options()) as second:
        again = Sent(second, name)
        again.next()
        assert again.one() == "outbox"
        fleet.active()
        drained(second)
        assert again.one() == "kafka"
    sent.accepted |= again.accepted
    agrees(fleet, name, sent)


def test_what_kafka_has_not_acknowledged_when_it_is_closed_is_in_the_outbox(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    producer = Producer(fleet.dsn, NOWHERE, options=Options(fresh=True))
    sent = [Event(topic=name, type="T", key="a", value=n) for n in range(5)]
    promises = [producer.send_soon(each) for each in sent]
    assert not producer.flush(timedelta(milliseconds=50))
    producer.close(timedelta(milliseconds=50))
    assert [promise.result(0) for promise in promises] == ["outbox"] * 5
    with psycopg.connect(fleet.dsn) as conn:
        rows = conn.execute("SELECT id::text, xid FROM outbox.events ORDER BY position").fetchall()
    assert [id_ for id_, _ in rows] == [each.id for each in sent]
    assert len({xid for _, xid in rows}) == 1
    with pytest.raises(ProducerClosed):
        producer.send(sent[0])


def test_while_the_broker_is_away_events_wait_for_postgres_alone(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    counted: Counter[str] = Counter()
    options = Options(delivery_timeout=timedelta(milliseconds=300), max_events=50, fresh=True)
    with Producer(
        fleet.dsn, NOWHERE, options=options, observe=lambda what, n: counted.update({what: n})
    ) as producer:
        sent = Sent(producer, name)
        assert sent.one() == "outbox"
        promises = [producer.send_soon(sent.next(f"k{n}")) for n in range(500)]
        assert producer.state.waiting <= 50
        assert producer.flush(timedelta(seconds=patient(10)))
        assert {promise.result(0) for promise in promises} == {"outbox"}
        assert producer.state.broker == "down"
        assert producer.state.kafka_trouble is not None
    assert counted["outbox"] == 501
    assert counted["kafka"] == 0


def test_when_both_are_away_each_event_is_refused_and_said_to_be_unsure() -> None:
    options = Options(
        delivery_timeout=timedelta(milliseconds=100),
        accept_timeout=timedelta(seconds=patient(0.3)),
        fresh=True,
    )
    with Producer(NO_DATABASE, NOWHERE, options=options) as producer:
        sent = [Event(topic="t", type="T", key="a", value=n) for n in range(3)]
        promises = [producer.send_soon(each) for each in sent]
        for each, promise in zip(sent, promises, strict=True):
            with pytest.raises(
                NotAccepted, match=f"{each.id} .*Kafka: .*Postgres: .*send it again"
            ):
                promise.result(patient(20))
        assert producer.state.waiting == 0


def test_a_database_without_an_outbox_is_named(database: str) -> None:
    options = Options(
        delivery_timeout=timedelta(milliseconds=100), accept_timeout=timedelta(seconds=patient(1))
    )
    with (
        Producer(database, NOWHERE, options=options) as producer,
        pytest.raises(NotAccepted, match="dovecote init outbox"),
    ):
        producer.send(Event(topic="t", type="T"))


def test_it_sends_from_coroutines(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)

    async def send() -> list[str]:
        options = Options(max_events=5, fresh=True)
        properties = {"bootstrap.servers": fleet.bootstrap}
        async with Producer(fleet.dsn, properties, options=options) as producer:
            events = [Event(topic=name, type="T", key=f"k{n}", value=n) for n in range(50)]
            return list(await asyncio.gather(*map(producer.send_async, events)))

    assert asyncio.run(send()) == ["kafka"] * 50
    assert len(consume(fleet.bootstrap, name)) == 50


def test_a_value_that_changes_after_it_was_sent_is_sent_as_it_was(
    fleet: Relays, topic: MakeTopic
) -> None:
    name, value = topic(1), {"n": 1}
    with doubtful(fleet) as producer:
        promise = producer.send_soon(Event(topic=name, type="T", value=value))
        value["n"] = 2
        assert promise.result() == "kafka"
    assert [each.value() for each in consume(fleet.bootstrap, name)] == [b'{"n":1}']


def test_what_could_never_be_published_is_refused_before_it_is_sent(fleet: Relays) -> None:
    with doubtful(fleet) as producer:
        for event in (
            Event(topic="__consumer_offsets", type="T"),
            Event(topic="t", type="T", id="no-uuid"),
            Event(topic="t", type="T", value=b"x" * 2_000_000),
        ):
            with pytest.raises(InvalidEvent):
                producer.send(event)
        assert producer.state.waiting == 0


@pytest.mark.parametrize("name", ["acks", "transactional.id", "no.such.property"])
def test_properties_that_a_guarantee_rests_on_and_unknown_ones_are_refused(name: str) -> None:
    with pytest.raises(BadSettings, match=name):
        Producer(NO_DATABASE, {**NOWHERE, name: "1"})


def test_times_and_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadSettings, match="delivery_timeout < accept_timeout"):
        Options(delivery_timeout=timedelta(minutes=1))
    with pytest.raises(BadSettings, match="max_events 0"):
        Options(max_events=0)
