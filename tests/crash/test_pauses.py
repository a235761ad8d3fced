"""A relay that was paused while another took over publishes nothing when it goes on."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg
import pytest

from outbox.schema.capture import use_wal
from tests.support.load import load
from tests.support.looking import pause_in_flight
from tests.support.relaying import (
    AGREE,
    RelayProcess,
    Relays,
    Watch,
    agrees,
    committed,
    difference,
    drained,
    fill,
)
from tests.support.waiting import consume, patient, until

LEASE = 2.0


def is_standby(relay: RelayProcess) -> bool:
    return '"role": "standby"' in relay.get("/readyz").body


def by_role(pair: Sequence[RelayProcess]) -> tuple[RelayProcess, RelayProcess] | None:
    """Return the active one and the standby, if they are that at this moment."""
    active, standby = sorted(pair, key=is_standby)
    return (active, standby) if is_standby(standby) and not is_standby(active) else None


def start_pair(
    fleet: Relays, *, lease: float = LEASE, **settings: Any
) -> tuple[RelayProcess, RelayProcess]:
    """Start an active relay and a standby."""
    first = fleet.active(lease=f"{lease:g}s", **settings)
    second = fleet.start(lease=f"{lease:g}s", **settings)
    until(lambda: "serving" in second.log and is_standby(second), within=20, what="a standby")
    return first, second


def test_a_paused_relay_loses_its_lease_and_is_fenced_with_its_work_in_flight(
    fleet: Relays, name: str
) -> None:
    old, new = start_pair(fleet, batch_rows=2_000)
    with closing(Watch(fleet.bootstrap, name)) as watch:
        with load(fleet.dsn, name, pace=0.001, bursts=[300]):
            pause_in_flight(old, watch)
        assert len(consume(fleet.bootstrap, name)) < len(committed(fleet.dsn, name))
        # The server hears nothing of it for as long as the lease, and the other one asks often.
        new.until_logged("publishing from", within=LEASE + 10)
        found = drained(fleet, name)
        assert difference(committed(fleet.dsn, name), found) == AGREE
        ended = watch.records()
        old.resume()
        until(lambda: is_standby(old), within=20, what="the old relay stands by")
        assert "no longer active" in old.log
        assert watch.in_flight() == 0
        assert watch.records() == ended, "the old relay wrote something"
        assert difference(committed(fleet.dsn, name), consume(fleet.bootstrap, name)) == AGREE
        assert new.log.count("publishing from") == 1, "the old relay fenced the new one"
        new.kill()
        fill(fleet.dsn, name, 100, first=1_000_000)
        agrees(fleet, name)


def test_a_relay_that_is_paused_while_it_parks_gives_the_role_away(
    fleet: Relays, name: str
) -> None:
    old, new = start_pair(fleet, topics=[name])
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:

        def parked() -> int:
            ((count,),) = conn.execute("SELECT count(*) FROM outbox.parked").fetchall()
            return int(count)

        written = 0

        def paused_midway() -> bool:
            nonlocal written
            before = parked()
            fill(fleet.dsn, "elsewhere", 20_000, first=written)
            written += 20_000
            until(lambda: parked() > before, within=20, what="some are parked")
            old.pause()
            if parked() < written:
                return True
            old.resume()
            return False

        until(paused_midway, within=60, what="a pause while it parks")
        new.until_logged("publishing from", within=LEASE + 10)
        until(lambda: parked() == written, within=60, what="all are parked")
        old.resume()
        until(lambda: is_standby(old), within=20, what="the old relay stands by")
        found = conn.execute("SELECT id::text FROM outbox.parked ORDER BY number").fetchall()
        assert [id_ for (id_,) in found] == committed(fleet.dsn, "elsewhere")


@pytest.mark.parametrize(
    ("mode", "capture"),
    [("exactly_once", "table"), ("at_least_once", "table"), ("exactly_once", "wal")],
)
def test_pauses_and_takeovers_under_load_lose_nothing(
    fleet: Relays, name: str, mode: str, capture: str
) -> None:
    if capture == "wal":
        use_wal(fleet.dsn, "outbox")
    pair = start_pair(fleet, mode=mode, capture=capture)
    with closing(Watch(fleet.bootstrap, name)) as watch, load(fleet.dsn, name, pace=0.02):
        for takeover in range(1, 4):
            goal = watch.records() + 50
            until(lambda goal=goal: watch.records() > goal, within=20, what="50 records")  # type: ignore[misc]  # bound early
            active, standby = until(lambda: by_role(pair), within=20, what="a standby") or pair
            active.pause()
            taken_over = standby.log.count("publishing from") + 1
            standby.until_logged("publishing from", times=taken_over, within=LEASE + 10)
            active.resume()
            until(lambda relay=active: is_standby(relay), within=20, what=f"takeover {takeover}")  # type: ignore[misc]  # bound early
    found = drained(fleet, name)
    what = difference(committed(fleet.dsn, name), found)
    if mode == "exactly_once":
        assert what == AGREE
    else:
        assert (what.lost, what.invented, what.out_of_order) == (set(), set(), [])


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_takeovers_from_a_relay_that_does_not_know_yet_lose_and_double_nothing(
    fleet: Relays, name: str, capture: str
) -> None:
    if capture == "wal":
        use_wal(fleet.dsn, "outbox")
    # It goes on publishing for up to a quarter of its lease; what it commits while the other one
    # takes over must be in the progress that the other one reads.
    pair = start_pair(fleet, lease=patient(4.0), capture=capture)
    with (
        closing(Watch(fleet.bootstrap, name)) as watch,
        load(fleet.dsn, name, pace=0.001, bursts=[1, 3]),
        psycopg.connect(fleet.dsn, autocommit=True) as conn,
    ):
        for _ in range(8):
            takeovers = sum(relay.log.count("publishing from") for relay in pair)
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)"
                " WHERE locktype = 'advisory' AND datname = current_database() AND granted"
            )
            until(
                lambda before=takeovers: (
                    sum(r.log.count("publishing from") for r in pair) > before
                ),  # type: ignore[misc]  # bound early
                within=20,
                what="a takeover",
            )
            goal = watch.records() + 20
            until(lambda goal=goal: watch.records() > goal, within=20, what="more records")  # type: ignore[misc]  # bound early
    until(
        lambda: any("has taken over" in relay.log for relay in pair),
        within=20,
        what="a relay that was fenced",
    )
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE
