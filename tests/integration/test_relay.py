"""The relay as operators run it: a process, its log, its exit status and its HTTP answers."""

import json
import re
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dovecote.devstack import Stack
from outbox import Event
from outbox.envelope import decode, encode
from tests.support.fix_stack import MakeTopic
from tests.support.relaying import (
    RelayProcess,
    Relays,
    agrees,
    commit,
    drained,
    event,
    fill,
    installed,
    published,
    record_of,
    relays,
)
from tests.support.topics import make_topic, metric
from tests.support.waiting import consume, until

BATCHES = "dovecote_relay_batches_total"


def test_what_was_committed_is_published_as_the_envelope_says(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    before = event(name, 1, key="a", subject="s", headers=[("h", None), ("h", "x")])
    after = [
        event(name, 2, key="a", traceparent=trace),
        Event(topic=name, type="Gone", key="b"),
        Event(topic=name, type="Unkeyed", value={"a": "ü"}, content_type="application/x"),
    ]
    commit(fleet.dsn, before)
    fleet.active()
    published(fleet, name, 1)
    commit(fleet.dsn, *after)
    found = {decode(record).id: record for record in map(record_of, published(fleet, name, 4))}
    assert set(found) == {made.id for made in [before, *after]}
    for made in [before, *after]:
        record = found[made.id]
        assert (record.key, record.value, list(record.headers)) == encode(made)
    assert found[before.id].partition == found[after[0].id].partition


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_a_backlog_is_published_in_order(fleet: Relays, topic: MakeTopic, mode: str) -> None:
    name = topic(4)
    fill(fleet.dsn, name, 3_000)
    fleet.active(mode=mode, batch_rows=400)
    published(fleet, name, 3_000)
    agrees(fleet, name)


def test_a_terminated_relay_ends_well_and_the_next_goes_on(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(2)
    fill(fleet.dsn, name, 8_000)
    first = fleet.active(batch_rows=5)
    until(lambda: metric(first, BATCHES) >= 20, within=30, what="20 batches")
    assert first.terminate(within=10) == 0
    assert "stopped" in first.log.splitlines()[-1]
    assert "Traceback" not in first.log
    stopped_at = len(consume(fleet.bootstrap, name))
    fill(fleet.dsn, name, 100, first=8_000)
    second = fleet.active()
    published(fleet, name, 8_100)
    agrees(fleet, name)
    assert stopped_at < 8_000, "it was done before it was told to stop"
    assert second.terminate(within=10) == 0


def test_an_idle_relay_ends_at_once(fleet: Relays) -> None:
    relay = fleet.active()
    assert relay.terminate(within=5) == 0


def test_of_many_relays_one_is_active_and_the_next_takes_over(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    crew = [fleet.start() for _ in range(3)]
    until(lambda: sum(is_active(relay) for relay in crew) == 1, within=30, what="one is active")
    until(lambda: all(is_ready(relay) for relay in crew), within=30, what="the others stand by")
    for number in range(3):
        commit(fleet.dsn, event(name, number))
        published(fleet, name, number + 1)
        until(lambda: all(is_ready(relay) for relay in crew), within=10, what="all are ready")
        active = [relay for relay in crew if is_active(relay)]
        assert len(active) == 1
        for relay in crew:
            assert json.loads(relay.get("/readyz").body)["role"] in {"active", "standby"}
            if relay is not active[0]:
                # Once, however often it has asked for the role since.
                (line,) = [each for each in relay.log.splitlines() if "standing by" in each]
                assert re.search(r"standing by: \S+ \(session \d+\) is active$", line)
        if len(crew) > 1:
            # A crash: its sessions end with its sockets, and the next one asks every 50 ms.
            active[0].kill()
            crew.remove(active[0])
            until(lambda: any(is_active(relay) for relay in crew), within=10, what="a takeover")
    agrees(fleet, name)


def is_ready(relay: RelayProcess) -> bool:
    return "serving" in relay.log and relay.get("/readyz").status == 200


def is_active(relay: RelayProcess) -> bool:
    return '"role": "active"' in relay.get("/readyz").body if "serving" in relay.log else False


def test_a_relay_that_lost_its_session_begins_again(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    relay = fleet.active()
    for number in range(3):
        commit(fleet.dsn, event(name, number))
        published(fleet, name, number + 1)
        with psycopg.connect(fleet.dsn, autocommit=True) as conn:
            conn.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        relay.until_logged("publishing from", times=number + 2)
    commit(fleet.dsn, event(name, 3))
    published(fleet, name, 4)
    agrees(fleet, name)
    assert relay.terminate() == 0


def test_an_event_as_large_as_the_outbox_takes_is_published(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    noise = bytes((n * n + n // 7) % 256 for n in range(1_000_000))
    commit(
        fleet.dsn,
        Event(
            topic=name,
            type="Large",
            key=noise[:16_384],
            value=noise,
            headers=[("h", noise[:16_000])],
        ),
    )
    fleet.active(kafka={"compression.type": "none"})
    (found,) = published(fleet, name, 1)
    assert found.value() == noise


def test_a_queue_smaller_than_a_batch_is_no_obstacle(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(2)
    fill(fleet.dsn, name, 1_000)
    fleet.active(kafka={"queue.buffering.max.messages": "50"})
    published(fleet, name, 1_000)
    agrees(fleet, name)


def test_a_transaction_holds_no_more_than_batch_rows(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    fill(fleet.dsn, name, 95)
    relay = fleet.active(batch_rows=10)
    published(fleet, name, 95)
    until(
        lambda: metric(relay, "dovecote_relay_batches_total") >= 10, within=10, what="10 batches"
    )
    agrees(fleet, name)


def test_a_huge_transaction_is_published_whole(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(4)
    fill(fleet.dsn, name, 30_000)
    fleet.active()
    published(fleet, name, 30_000, within=60)
    agrees(fleet, name)


def test_the_metrics_tell_what_happened(fleet: Relays, topic: MakeTopic) -> None:
    one, two = topic(1), topic(1)
    relay = fleet.active(lease="1s")
    fill(fleet.dsn, one, 30)
    fill(fleet.dsn, two, 12)
    published(fleet, one, 30)
    published(fleet, two, 12)
    total = "dovecote_relay_events_published_total"
    until(lambda: metric(relay, total, f'topic="{two}"') == 12, within=10, what="12 counted")
    until(lambda: metric(relay, total, f'topic="{one}"') == 30, within=10, what="30 counted")
    assert metric(relay, "dovecote_relay_active") == 1
    until(lambda: metric(relay, BATCHES) >= 1, within=10, what="a batch counted")
    assert metric(relay, "dovecote_relay_publish_seconds_count") >= 1
    progress = "dovecote_relay_last_progress_timestamp_seconds"
    until(lambda: metric(relay, progress) > 1.7e9, within=10, what="its time")
    missing = f"{fleet.name}-missing"
    commit(fleet.dsn, event(missing, 1))
    until(lambda: metric(relay, "dovecote_relay_parked") == 1, within=20, what="one parked")
    body = relay.get("/metrics").body
    for line in body.splitlines():
        assert line.startswith("#") or f'outbox="{fleet.name}"' in line
    assert relay.get("/nowhere").status == 404
    assert relay.get("/healthz?verbose").status == 200


def test_the_lag_is_that_of_the_events_that_wait_for_kafka(
    own_stack: Stack, tmp_path: Path
) -> None:
    dsn, kafka = installed(own_stack.postgres.dsn), own_stack.kafka
    one, two = "one", "two"
    for name in (one, two):
        make_topic(kafka.bootstrap, name)
    with relays(tmp_path, dsn, kafka.bootstrap) as fleet:
        relay = fleet.active(lease="1s")
        fill(dsn, one, 30)
        published(fleet, one, 30)
        kafka.pause()
        try:
            commit(dsn, event(two, 2))
            fill(dsn, one, 5, first=30)
            lag = "dovecote_relay_lag_rows"
            until(lambda: metric(relay, lag) == 6, within=20, what="a lag of 6")
            seconds = "dovecote_relay_lag_seconds"
            until(lambda: metric(relay, seconds) > 0, within=20, what="a lag in time")
        finally:
            kafka.resume()
        drained(fleet, one)
        until(lambda: metric(relay, lag) == 0, within=20, what="no lag")


def test_secrets_are_printed_nowhere(fleet: Relays, topic: MakeTopic) -> None:
    password = str(conninfo_to_dict(fleet.dsn)["password"])
    secrets = {"SASL": "sasl-tops3cret", "KEY": "key-tops3cret"}
    name = topic(1)
    relay = fleet.active(
        kafka={"sasl.username": "u", "debug": "all", "log_level": "7"},
        environ={
            "DOVECOTE_RELAY_KAFKA__SASL_PASSWORD": secrets["SASL"],
            "DOVECOTE_RELAY_KAFKA__SSL_KEY_PASSWORD": secrets["KEY"],
        },
    )
    commit(fleet.dsn, event(name, 1), event(f"{fleet.name}-missing", 1))
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    relay.until_logged("publishing from", times=2)
    shown = [relay.get(path).body for path in ("/metrics", "/readyz", "/healthz")]
    relay.terminate()
    for secret in (*secrets.values(), password):
        assert secret not in relay.log
        assert all(secret not in text for text in shown)
