"""Switched there and back while relays are killed, nothing is lost, doubled or reordered."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from outbox.schema.capture import installed, use_table, use_wal
from relay.operating import reshard as resharding
from tests.support.load import Load, load
from tests.support.looking import active
from tests.support.relaying import AGREE, Relays, committed, difference, drained
from tests.support.shards import wanted
from tests.support.waiting import patient, until

KILLS = 16


@contextmanager
def switching(dsn: str, running: Load) -> Iterator[list[str]]:
    """Switch again and again, sometimes before the last switch is done; record each switch."""
    chance = random.Random(1916)  # to be repeated, no secret
    enough = threading.Event()
    done: list[str] = []

    def switch() -> None:
        while not enough.is_set():
            use_wal(dsn, "outbox")
            done.append("wal")
            running.goes_on(chance.choice([1, 20, 60]))
            use_table(dsn, "outbox")
            done.append("table")
            if chance.random() < 0.7:
                until(lambda: enough.is_set() or is_in_table(dsn), within=60, what="the way back")
            running.goes_on(chance.choice([1, 20, 60]))

    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(switch)
        try:
            yield done
        finally:
            enough.set()
            task.result(patient(60))


def is_in_table(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return installed(conn, "outbox").state == "table"


def said(fleet: Relays, text: str) -> int:
    return sum(relay.log.count(text) for relay in fleet.started)


def kill_at_switches(fleet: Relays, shards: int) -> None:
    """Kill the active relay: when it says that it goes on elsewhere, or at any other moment."""
    chance = random.Random(2013)  # to be repeated, no secret
    pause = threading.Event()
    crew = [fleet.start(shards=shards) for _ in range(shards + 1)]
    for _ in range(KILLS):
        (victim, *_) = until(lambda: active(crew), within=30, what="an active relay")
        if chance.random() < 0.7:
            before = said(fleet, "going on in the ")
            until(
                lambda before=before: said(fleet, "going on in the ") > before,  # type: ignore[misc]  # bound early
                within=60,
                what="a switch",
            )
        pause.wait(chance.choice([0, 0, 0.01, 0.05, 0.3]))
        victim.kill()
        crew.remove(victim)
        crew.append(fleet.start(shards=shards))


@pytest.mark.parametrize("shards", [1, 2])
def test_killed_while_it_is_switched_there_and_back_it_publishes_each_event_once_and_in_order(
    fleet: Relays, name: str, tmp_path: Path, shards: int
) -> None:
    assert resharding.reshard(wanted(fleet, shards))
    with load(fleet.dsn, name) as running, switching(fleet.dsn, running) as switches:
        kill_at_switches(fleet, shards)
        # A slow machine switches less often than it kills.
        until(lambda: switches.count("table") > 1, within=60, what="two switches there and back")
        for place in ("table", "log"):
            until(
                lambda place=place: said(fleet, f"going on in the {place}") > 1,  # type: ignore[misc]  # bound early
                within=60,
                what=f"it is said twice that a relay goes on in the {place}",
            )
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE
    assert not [path for path in tmp_path.rglob("relay.log") if "Traceback" in path.read_text()]
