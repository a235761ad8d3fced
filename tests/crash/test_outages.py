"""A relay waits for a server that is away: it says so, loses nothing and goes on by itself."""

import os
import time
from pathlib import Path

import pytest

from dovecote.devstack import Stack
from outbox.schema.capture import use_wal
from tests.support.load import load
from tests.support.looking import ends
from tests.support.relaying import AGREE, RelayProcess, Relays, committed, difference, drained
from tests.support.waiting import until

SECONDS = float(os.environ.get("DOVECOTE_OUTAGE_SECONDS", "3"))


@pytest.mark.timeout(max(180, 10 * SECONDS))
@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("which", ["kafka", "postgres"])
def test_an_outage_is_said_waited_for_and_survived(
    module_stack: Stack, fleet: Relays, name: str, which: str, how: str
) -> None:
    server = module_stack.kafka if which == "kafka" else module_stack.postgres
    relay = fleet.active(stall_after="2s")
    with load(fleet.dsn, name, pace=0.05):
        until(lambda: published(relay) > 20, within=30, what="a relay at work")
        began = time.monotonic()
        bring_back = ends(server, how)
        try:
            until(lambda: says(relay, which), within=max(SECONDS, 10), what="503 with its reason")
            until(
                lambda: time.monotonic() - began > SECONDS, within=SECONDS + 1, what="its length"
            )
            assert relay.get("/healthz").status == 200
            assert says(relay, which)
        finally:
            bring_back()
        before = published(relay)
        until(lambda: relay.get("/readyz").status == 200, within=60, what="ready again")
        until(lambda: published(relay) > before + 20, within=60, what="going on")
    assert "nothing is lost" in relay.log
    assert "going on after" in relay.log
    assert "Traceback" not in relay.log
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE
    assert relay.terminate() == 0


def says(relay: RelayProcess, which: str) -> bool:
    """Return whether /readyz refuses, and both it and the log name the server."""
    answer = relay.get("/readyz")
    named = {"kafka": "Kafka", "postgres": "Postgres"}[which]
    return answer.status == 503 and named in answer.body and named in relay.log


def published(relay: RelayProcess) -> int:
    lines = relay.get("/metrics").body.splitlines()
    start = "dovecote_relay_events_published_total{"
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(start))


@pytest.mark.parametrize("which", ["kafka", "postgres"])
def test_a_relay_may_start_before_its_servers(
    module_stack: Stack, fleet: Relays, name: str, which: str
) -> None:
    server = module_stack.kafka if which == "kafka" else module_stack.postgres
    bring_back = ends(server, "kill")
    try:
        relay = fleet.start(transaction_timeout="3s")
        relay.until_logged("outage: ")
        until(lambda: says(relay, which), within=10, what="503 with its reason")
    finally:
        bring_back()
    with load(fleet.dsn, name, pace=0.05):
        until(lambda: published(relay) > 20, within=60, what="at work")
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE


def test_sigterm_ends_a_relay_whose_server_hangs(module_stack: Stack, fleet: Relays) -> None:
    relay = fleet.active()
    module_stack.postgres.pause()
    try:
        assert relay.terminate(within=15) == 0
    finally:
        module_stack.postgres.resume()


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_a_crash_of_postgres_and_then_of_kafka_in_the_middle_of_it_all(
    module_stack: Stack, fleet: Relays, name: str, capture: str
) -> None:
    if capture == "wal":
        use_wal(fleet.dsn, "outbox")
    relay = fleet.active(capture=capture)
    with load(fleet.dsn, name, pace=0.01):
        for server in (module_stack.postgres, module_stack.kafka, module_stack.postgres):
            before = published(relay)
            until(lambda before=before: published(relay) > before + 50, within=60, what="work")  # type: ignore[misc]  # bound early
            server.kill()
            server.start()
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_an_outage_of_kafka_uses_up_no_descriptors(
    module_stack: Stack, fleet: Relays, name: str, capture: str
) -> None:
    if capture == "wal":
        use_wal(fleet.dsn, "outbox")
    relay = fleet.active(capture=capture, transaction_timeout="1s")
    with load(fleet.dsn, name, pace=0.05):
        until(lambda: published(relay) > 20, within=30, what="a relay at work")
        module_stack.kafka.kill()
        try:
            relay.until_logged("outage: ", times=2)
            before = held(relay)
            relay.until_logged("outage: ", times=5, within=60)
            # While it waits for the next attempt, it has as many descriptors as then, or fewer.
            until(
                lambda: all(now <= then for now, then in zip(held(relay), before, strict=True)),
                within=10,
                what=f"no more than {before} descriptors and threads",
            )
        finally:
            module_stack.kafka.start()
    assert difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE


def held(relay: RelayProcess) -> tuple[int, int]:
    """Return how many descriptors and threads the relay has."""
    process = Path(f"/proc/{relay.pid}")
    return len(list((process / "fd").iterdir())), len(list((process / "task").iterdir()))
