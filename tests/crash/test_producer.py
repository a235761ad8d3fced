"""
Kills, pauses and cuts lose nothing that a producer has accepted, and keep its order.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from dovecote.devstack import Stack
from outbox.producer.producer import Options, Producer
from proof.proxy import Proxy
from tests.support.looking import ends
from tests.support.relaying import Relays, difference, ids, seen
from tests.support.sending import Sent
from tests.support.waiting import patient, until

SECONDS = float(os.environ.get("DOVECOTE_OUTAGE_SECONDS", "3"))
QUICK = Options(
    delivery_timeout=timedelta(seconds=1),
    accept_timeout=timedelta(seconds=90),
    max_events=2_000,
    fresh=True,
)
KEYS = 20


@contextmanager
def loaded(
    fleet: Relays, topic: str, *, dsn: str | None = None
) -> Iterator[tuple[Sent, Producer]]:
    """Send events of some keys all the time; close the producer at the end."""
    stop = threading.Event()
    properties = {"bootstrap.servers": fleet.bootstrap}
    with Producer(dsn or fleet.dsn, properties, options=QUICK) as producer:
        sent = Sent(producer, topic)
        load = threading.Thread(target=sent.load, args=(KEYS, stop))
        load.start()
        try:
            yield sent, producer
        finally:
            stop.set()
            load.join()


def require_all(fleet: Relays, topic: str, accepted: Mapping[str, str]) -> None:
    """
    Check that everything accepted is there, in order; copies have the ids of their originals.
    """
    records = seen(fleet, topic, lambda all_: set(ids(all_)) >= set(accepted), 60, "all of it")
    found = difference(accepted, records)
    assert (found.lost, found.invented, found.out_of_order) == (set(), set(), [])


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_broker_that_dies_or_hangs_under_load_costs_no_event_and_no_order(
    module_stack: Stack, fleet: Relays, name: str, how: str
) -> None:
    fleet.active()
    with loaded(fleet, name) as (sent, producer):
        until(lambda: sent.has_accepted("kafka"), within=30, what="events at Kafka itself")
        bring_back = ends(module_stack.kafka, how)
        try:
            until(lambda: producer.state.broker == "down", within=10, what="the way round")
            until(lambda: sent.has_accepted("outbox"), within=10, what="events in the outbox")
            threading.Event().wait(SECONDS)
            assert producer.state.waiting <= QUICK.max_events
        finally:
            bring_back()
        until(lambda: producer.state.broker == "up", within=60, what="the broker back")
        until(lambda: producer.state.lanes == 0, within=60, what="all keys back at Kafka")
    assert set(sent.accepted.values()) == {"kafka", "outbox"}
    require_all(fleet, name, sent.accepted)


def test_a_postgres_that_is_cut_off_stalls_and_dies_meanwhile_costs_nothing_either(
    module_stack: Stack, fleet: Relays, name: str
) -> None:
    place = psycopg.conninfo.conninfo_to_dict(fleet.dsn)
    with Proxy((str(place["host"]), int(str(place["port"])))) as proxy:
        dsn = make_conninfo(fleet.dsn, port=proxy.port)
        fleet.active()
        with loaded(fleet, name, dsn=dsn) as (sent, producer):
            until(lambda: sent.has_accepted("kafka"), within=30, what="events at Kafka itself")
            module_stack.kafka.pause()
            try:
                until(lambda: producer.state.broker == "down", within=10, what="the way round")
                until(lambda: sent.has_accepted("outbox"), within=10, what="events in the outbox")
                for _ in range(3):
                    proxy.cut()
                proxy.stall()
                until(lambda: producer.state.outbox_trouble, within=10, what="a server that hangs")
                proxy.resume()
                module_stack.postgres.kill()
                module_stack.postgres.start()
            finally:
                module_stack.kafka.resume()
            until(lambda: producer.state.lanes == 0, within=60, what="all keys back at Kafka")
    assert set(sent.accepted.values()) == {"kafka", "outbox"}
    require_all(fleet, name, sent.accepted)


SERVICE = """
import json, os, sys, threading
from datetime import timedelta
from itertools import count
from outbox import Event
from outbox import Options, Producer

dsn, bootstrap, topic, first = sys.argv[1:]
options = Options(delivery_timeout=timedelta(seconds=1))
producer = Producer(dsn, {"bootstrap.servers": bootstrap}, options=options)

def tell(event, promise):
    # One write: a line is there as a whole, or not at all.
    line = json.dumps([event.id, promise.result()]) + chr(10)
    os.write(1, line.encode())

for number in count(int(first)):
    event = Event(topic=topic, type="T", key=f"k{number % 5}", value=number)
    producer.send_soon(event).add_done_callback(lambda promise, event=event: tell(event, promise))
    threading.Event().wait(0.001)
"""


def test_a_service_that_is_killed_leaves_all_that_was_accepted_and_the_next_one_keeps_the_order(
    module_stack: Stack, fleet: Relays, name: str, tmp_path: Path
) -> None:
    fleet.active()
    accepted: dict[str, str] = {}
    for life in range(3):
        said = tmp_path / f"accepted-{life}"
        first = str(life * 10_000_000)
        with said.open("wb") as out:
            service = subprocess.Popen(
                [sys.executable, "-c", SERVICE, fleet.dsn, fleet.bootstrap, name, first],
                stdout=out,
            )
            try:
                until(lambda: said.stat().st_size > 20_000, within=30, what="accepted events")  # noqa: B023  # used at once
                if life == 0:
                    until(lambda: '"kafka"' in said.read_text(), within=30, what="one at Kafka")  # noqa: B023  # used at once
                if life == 1:
                    module_stack.kafka.pause()
                    before = said.stat().st_size
                    until(lambda: said.stat().st_size > before + 20_000, within=30, what="more")  # noqa: B023  # used at once
                    until(lambda: '"outbox"' in said.read_text(), within=30, what="one round it")  # noqa: B023  # used at once
            finally:
                service.kill()
                service.wait(patient(10))
                if life == 1:
                    module_stack.kafka.resume()
        accepted |= dict(json.loads(line) for line in said.read_text().splitlines())
    assert set(accepted.values()) == {"kafka", "outbox"}
    records = seen(fleet, name, lambda all_: set(ids(all_)) >= set(accepted), 60, "all of it")
    # Events that were sent but not accepted before the kill may be there too.
    of_accepted = [
        record for record, id_ in zip(records, ids(records), strict=True) if id_ in accepted
    ]
    found = difference(accepted, of_accepted)
    assert (found.lost, found.out_of_order) == (set(), [])
