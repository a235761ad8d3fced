"""
A relay that is killed at any moment loses, doubles and reorders nothing.

`DOVECOTE_KILLS_OF_RELAYS=50` makes it long; `make proof` goes on for as long as one likes.
"""

import os
import random
import threading
from contextlib import closing
from typing import Any

import pytest

from outbox.schema.capture import use_wal
from tests.support.load import load
from tests.support.looking import active, pause_in_flight
from tests.support.relaying import (
    AGREE,
    Relays,
    Watch,
    committed,
    difference,
    drained,
)
from tests.support.shards import in_log
from tests.support.waiting import consume, until

KILLS = int(os.environ.get("DOVECOTE_KILLS_OF_RELAYS", "8"))


def kill_again_and_again(
    fleet: Relays, watch: Watch, kills: int, *, in_flight: bool = False, **settings: Any
) -> None:
    """
    Kill the active relay at moments that depend on its work, while two others stand by.

    The seeded chance picks the moment: before it publishes, after its first record, in the middle
    of a batch, at rest. `in_flight` has one more kill strike a transaction that is open.
    """
    chance = random.Random(2013)  # to be repeated, no secret
    pause = threading.Event()
    crew = [fleet.start(**settings) for _ in range(3)]
    for _ in range(kills):
        (victim, *_) = until(lambda: active(crew), within=30, what="an active relay")
        moment = chance.random()
        if moment < 0.2:
            pause.wait(chance.random() * 0.1)  # while it takes over
        else:
            goal = watch.records() + chance.choice([1, 1, 20, 300, 700])
            until(lambda goal=goal: watch.records() >= goal, within=30, what="more records")  # type: ignore[misc]  # bound early
        victim.kill()
        crew.remove(victim)
        crew.append(fleet.start(**settings))
    if in_flight:
        (victim, *_) = until(lambda: active(crew), within=30, what="an active relay")
        pause_in_flight(victim, watch)
        victim.kill()


@pytest.mark.slow
@pytest.mark.timeout(max(900, 30 * KILLS))
def test_killed_again_and_again_under_load_it_loses_doubles_and_reorders_nothing(
    fleet: Relays, name: str
) -> None:
    with closing(Watch(fleet.bootstrap, name)) as watch, load(fleet.dsn, name) as running:
        kill_again_and_again(fleet, watch, KILLS, in_flight=True, mode="exactly_once")
    found = drained(fleet, name)
    wanted = committed(fleet.dsn, name)
    assert difference(wanted, found) == AGREE
    assert len(wanted) > 100 * KILLS
    attempted = consume(fleet.bootstrap, name, isolation="read_uncommitted")
    assert len(attempted) > len(found), "no kill struck a batch in flight"
    assert running.transactions > 20 * KILLS


def test_at_least_once_repeats_no_more_than_the_batches_in_flight_and_loses_nothing(
    fleet: Relays, name: str
) -> None:
    kills, batch_rows = 5, 50
    with closing(Watch(fleet.bootstrap, name)) as watch, load(fleet.dsn, name):
        kill_again_and_again(fleet, watch, kills, mode="at_least_once", batch_rows=batch_rows)
    found = drained(fleet, name)
    wanted = committed(fleet.dsn, name)
    what = difference(wanted, found)
    assert (what.lost, what.invented, what.out_of_order) == (set(), set(), [])
    # Progress follows each batch before the next one is sent, so a kill leaves at most one batch
    # without it.
    repeats = len(found) - len(wanted)
    assert repeats <= kills * batch_rows


@pytest.mark.timeout(max(900, 30 * KILLS))
def test_killed_again_and_again_it_reads_the_log_without_a_gap(fleet: Relays, name: str) -> None:
    use_wal(fleet.dsn, "outbox")
    with closing(Watch(fleet.bootstrap, name)) as watch, load(fleet.dsn, name):
        kill_again_and_again(fleet, watch, KILLS, in_flight=True, capture="wal")
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE
    attempted = consume(fleet.bootstrap, name, isolation="read_uncommitted")
    assert len(attempted) > len(committed(fleet.dsn, name)), "no kill struck a batch in flight"


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_killed_again_and_again_its_shards_lose_double_and_reorder_nothing(
    fleet: Relays, name: str, capture: str
) -> None:
    if capture == "wal":
        in_log(fleet, 2)
    with closing(Watch(fleet.bootstrap, name)) as watch, load(fleet.dsn, name):
        kill_again_and_again(fleet, watch, 5, shards=2)
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE
