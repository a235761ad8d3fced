"""Events that cannot be published are parked, and operators decide about them."""

import json
import uuid
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from dovecote.devstack import Stack
from outbox import Event, write
from outbox.schema import limit_events
from tests.support.fix_stack import MakeTopic
from tests.support.parking import listed, parked, ready
from tests.support.relaying import (
    AGREE,
    RelayProcess,
    Relays,
    commit,
    committed,
    difference,
    drained,
    event,
    ids,
    installed,
    published,
    relays,
)
from tests.support.topics import alter_topic, metric
from tests.support.waiting import consume, until

UNCOMPRESSED = {"compression.type": "none"}


def large(topic: str, number: int, key: str | None = "bad") -> Event:
    """Return an event whose record no topic of 3,000 bytes takes; its value is its number."""
    return Event(topic=topic, type="Large", key=key, value=" " * 4_999 + str(number))


@pytest.mark.parametrize(
    ("mode", "capture"),
    [("exactly_once", "table"), ("at_least_once", "table"), ("exactly_once", "wal")],
)
def test_a_key_is_held_until_its_event_is_requeued_and_others_go_on(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, mode: str, capture: str
) -> None:
    name = topic(1, max_message_bytes="3000")
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        for number in range(3):
            commit(fleet.dsn, event(name, number, key="bad"), event(name, number, key="good"))
        too_large = large(name, 3)
        commit(fleet.dsn, too_large, event(name, 3, key="good"), event(name, 4, key="bad"))
        relay = fleet.active(mode=mode, capture=capture, kafka=UNCOMPRESSED, lease="1s")
        commit(fleet.dsn, event(name, 5, key="bad"), event(name, 4, key="good"))
        until(lambda: len(listed(fleet)) == 3, within=20, what="three are parked")
        assert [row["code"] for row in listed(fleet)] == [
            "MSG_SIZE_TOO_LARGE", "BEHIND", "BEHIND",
        ]  # fmt: skip
        good = [each for each in committed(fleet.dsn, name) if each != too_large.id]
        until(
            lambda: len(set(ids(consume(fleet.bootstrap, name)))) == 8,
            within=20,
            what="all others are published",
        )
        assert set(ids(consume(fleet.bootstrap, name))) < set(good)
        until(lambda: ready(relay), within=10, what="ready")
        relay.until_logged(f"parked event {too_large.id} for topic '{name}', key 'bad'")
        until(lambda: metric(relay, "dovecote_relay_parked") == 3, within=10, what="three counted")
        total, large_ones = "dovecote_relay_events_parked_total", 'reason="MSG_SIZE_TOO_LARGE"'
        until(lambda: metric(relay, total, large_ones) == 1, within=10, what="its reason counted")
        alter_topic(fleet.bootstrap, name, max_message_bytes="10000")
        done = parked(fleet, "requeue", too_large.id, "--wait")
        assert (done.returncode, done.stdout) == (0, "requeued 3 events\n"), done.stderr
        commit(fleet.dsn, event(name, 6, key="bad"))
        wanted = committed(fleet.dsn, name)
        found = drained(fleet, name)
        difference_ = difference(wanted, found)
        if mode == "at_least_once":
            difference_ = difference_._replace(doubled=set())
        assert difference_ == AGREE
        assert parked(fleet, "list").stdout == "nothing is parked\n"
        until(lambda: metric(relay, "dovecote_relay_parked") == 0, within=5, what="none counted")


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_an_event_too_large_is_parked_beside_one_whose_topic_is_missing(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, capture: str
) -> None:
    name, missing = topic(1, max_message_bytes="3000"), f"missing-{uuid.uuid4().hex}"
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        fleet.active(capture=capture, kafka=UNCOMPRESSED, park_after="1s")
        too_large, lost, good = large(name, 0), event(missing, 0), event(name, 0, key="good")
        commit(fleet.dsn, too_large, lost, good)
        # For the records that go with it, the broker's answer is not the first report.
        until(lambda: len(listed(fleet)) == 2, within=60, what="both are parked")
        assert {row["id"]: row["code"] for row in listed(fleet)} == {
            too_large.id: "MSG_SIZE_TOO_LARGE",
            lost.id: "UNKNOWN_TOPIC_OR_PART",
        }
        published(fleet, name, 1)
        assert ids(consume(fleet.bootstrap, name)) == [good.id]


def test_a_huge_event_is_parked_without_being_read(fleet: Relays, topic: MakeTopic) -> None:
    name, size = topic(1), 60_000_000
    with psycopg.connect(fleet.dsn) as conn:
        limit_events(conn, "outbox", 1_000_000_000)
    relay = fleet.active()
    commit(fleet.dsn, event(name, 0, key="huge"), event(name, 0, key="good"))
    published(fleet, name, 2)
    before = peak(relay)
    with psycopg.connect(fleet.dsn) as conn:
        conn.execute(
            "SELECT outbox.append(%s, 'huge', convert_to(repeat('x', %s), 'UTF8'), 'Huge')",
            [name, size],
        )
        conn.execute(
            "SELECT outbox.append(%s, 'good', '', 'Huge', source => repeat('x', %s))",
            [name, size],
        )
    commit(fleet.dsn, event(name, 1, key="huge"), event(name, 1, key="other"))
    assert len(published(fleet, name, 3)) == 3
    until(lambda: len(listed(fleet)) == 3, within=20, what="three are parked")
    assert [(row["code"], row["size"]) for row in listed(fleet)] == [
        ("MSG_SIZE_TOO_LARGE", size), ("MSG_SIZE_TOO_LARGE", 0), ("BEHIND", 1),
    ]  # fmt: skip
    # It is not read either when it is requeued, or by the next active relay.
    assert parked(fleet, "requeue", "--all", "--wait").returncode == 1
    assert [row["attempt"] for row in listed(fleet)] == [2, 2, 1]
    assert peak(relay) < before + 50_000_000
    relay.kill()
    fleet.active()
    assert parked(fleet, "drop", "--all", "--wait").stdout == "dropped 3 events\n"


def peak(relay: RelayProcess) -> int:
    """Return the peak memory of a relay."""
    status = Path(f"/proc/{relay.pid}/status").read_text(encoding="ascii")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if "VmHWM" in line))


TOO_LARGE: list[LiteralString] = [
    "SELECT outbox.append('orders', 'k', convert_to(repeat('x', %s), 'UTF8'), 'T')",
    "SELECT outbox.append('orders', '', '', 'T', subject => repeat('x', %s))",
    "SELECT outbox.append('orders', convert_to(repeat('x', %s), 'UTF8'), '', 'T')",
    """SELECT outbox.append('orders', '', '', 'T', header_names => ARRAY['h'],
       header_values => ARRAY[convert_to(repeat('x', %s), 'UTF8')])""",
    """SELECT outbox.append_many(ARRAY['a', 'b'], ARRAY[NULL, '']::bytea[],
       ARRAY['', convert_to(repeat('x', %s), 'UTF8')], ARRAY['T', 'T'],
       ARRAY[gen_random_uuid(), gen_random_uuid()], ARRAY['s', 's'],
       ARRAY[NULL, NULL], ARRAY[now(), now()], ARRAY[NULL, NULL])""",
]


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_an_event_is_no_larger_than_the_outbox_lets_in(database: str, capture: str) -> None:
    with psycopg.connect(installed(database, capture), autocommit=True) as conn:
        conn.execute(TOO_LARGE[0], [10_000_000])
        for refused in TOO_LARGE:
            with pytest.raises(psycopg.errors.CheckViolation, match="at most 16777216 are"):
                conn.execute(refused, [17_000_000])
        with psycopg.connect(database, autocommit=True) as other:
            limit_events(other, "outbox", 1_000)
        with pytest.raises(psycopg.errors.CheckViolation, match="at most 1000 are"):
            conn.execute(TOO_LARGE[0], [2_000])


def test_of_two_events_that_differ_in_their_headers_the_refused_one_is_parked(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1, max_message_bytes="3000")
    fleet.active(kafka=UNCOMPRESSED)
    good, bad = event(name, 0), event(name, 0, headers=[("h", b" " * 5_000)])
    assert (good.key, good.value) == (bad.key, bad.value)
    commit(fleet.dsn, good, bad)
    until(lambda: listed(fleet), within=20, what="one is parked")
    published(fleet, name, 1)
    assert [row["id"] for row in listed(fleet)] == [bad.id]
    assert ids(consume(fleet.bootstrap, name)) == [good.id]


def test_a_key_is_skipped_by_request_and_the_event_dropped(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1, max_message_bytes="3000")
    fleet.active(on_poison="skip", kafka=UNCOMPRESSED)
    one, unkeyed, other = large(name, 1), large(name, 2, key=None), large(name, 3)
    commit(fleet.dsn, event(name, 0, key="bad"), one, unkeyed, other, event(name, 4, key="bad"))
    assert len(published(fleet, name, 2)) == 2
    assert [row["id"] for row in listed(fleet)] == [one.id, unkeyed.id, other.id]
    shown = json.loads(parked(fleet, "show", unkeyed.id, "--json").stdout)
    assert (shown["key"], shown["value"].strip(), shown["holds"]) == (None, "2", False)
    assert "attempt      1" in parked(fleet, "show", one.id).stdout
    refused = parked(fleet, "requeue", one.id, "--wait")
    assert refused.returncode == 1
    assert "1 of 1 event stays parked" in refused.stderr
    assert [row["attempt"] for row in listed(fleet)] == [2, 1, 1]
    # Each of several events is tried, if none waits for another.
    assert parked(fleet, "requeue", "--all", "--wait").returncode == 1
    assert [row["attempt"] for row in listed(fleet)] == [3, 2, 2]
    done = parked(fleet, "drop", one.id, "--wait", "--json")
    assert json.loads(done.stdout) == {"action": "drop", "events": 1, "done": True, "left": 0}
    assert parked(fleet, "drop", "--topic", name, "--wait").stdout == "dropped 2 events\n"
    commit(fleet.dsn, event(name, 5, key="bad"))
    assert [int(record.value() or b"") for record in published(fleet, name, 3)] == [0, 4, 5]


def test_one_writer_who_fills_a_key_holds_up_nobody_and_is_named(
    fleet: Relays, topic: MakeTopic
) -> None:
    name, other = topic(1, max_message_bytes="3000"), topic(1)
    limits = {"park_most": 10_000, "park_most_of_key": 1_000}
    relay = fleet.active(kafka=UNCOMPRESSED, lease="2s", **limits)
    first = large(name, 0, key="mine")
    with psycopg.connect(fleet.dsn) as conn:
        write(conn, first)
        conn.execute(
            "SELECT count(outbox.append(topic => %s, key => 'mine', value => i::text::bytea,"
            " type => 'T')) FROM generate_series(1, 15000) AS i",
            [name],
        )
    commit(fleet.dsn, *[event(other, n) for n in range(20)], event(name, 1, key="yours"))
    published(fleet, other, 20)
    published(fleet, name, 1)
    until(lambda: ready(relay), within=10, what="ready")
    crowded = "dovecote_relay_parked_crowded"
    until(
        lambda: [metric(relay, crowded, f'kind="{kind}"') for kind in ("topic", "key")] == [1, 1],
        within=30,
        what="both are counted",
    )
    # They are counted now and then, perhaps amid the parking.
    until(
        lambda: metric(relay, "dovecote_relay_parked_waiting") == 15_000,
        within=30,
        what="all are counted",
    )
    said = f"15001 events of topic '{name}', key 'mine' are parked, 15000 of them only wait"
    relay.until_logged(f"of topic '{name}', key 'mine' are parked")
    listed_ = parked(fleet, "list").stdout
    assert f"too many: {said}" in listed_
    # The next relay finds the key without reading what waits for it.
    relay.kill()
    relay = fleet.active(kafka=UNCOMPRESSED, lease="2s", **limits)
    commit(fleet.dsn, event(name, 15_001, key="mine"), event(other, 20))
    published(fleet, other, 21)
    assert len(listed(fleet, "--key", "mine", "--limit", "20000")) == 15_002
    assert parked(fleet, "drop", first.id, "--wait").returncode == 0
    done = parked(fleet, "requeue", "--key", "mine", "--wait")
    assert (done.returncode, done.stdout) == (0, "requeued 15,001 events\n"), done.stderr
    found = published(fleet, name, 15_002)
    mine = [int(record.value() or b"") for record in found if record.key() == b"mine"]
    assert mine == list(range(1, 15_002))


def test_a_relay_that_takes_over_knows_what_is_held(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1, max_message_bytes="3000")
    first = fleet.active(kafka=UNCOMPRESSED)
    commit(fleet.dsn, large(name, 0))
    until(lambda: len(listed(fleet)) == 1, within=10, what="it is parked")
    first.kill()
    # The next active relay carries out a command that was given while none was active.
    asked = parked(fleet, "requeue", "--key", "bad")
    assert "asked to requeue 1 event; " in asked.stdout
    commit(fleet.dsn, event(name, 1, key="bad"))
    relay = fleet.active(kafka=UNCOMPRESSED)
    relay.until_logged("it stays parked")
    until(lambda: len(listed(fleet)) == 2, within=10, what="the second waits behind the first")
    assert [row["attempt"] for row in listed(fleet)] == [2, 1]
    assert parked(fleet, "drop", listed(fleet)[0]["id"], "--wait").returncode == 0
    commit(fleet.dsn, event(name, 2, key="bad"))
    until(lambda: len(listed(fleet)) == 2, within=10, what="the key is held on")
    assert parked(fleet, "requeue", "--topic", name, "--key", "bad", "--wait").returncode == 0
    assert [int(record.value() or b"") for record in published(fleet, name, 2)] == [1, 2]


def test_what_is_not_parked_is_said_to_be_so(fleet: Relays) -> None:
    unknown = str(uuid.uuid4())
    for arguments in (("show", unknown), ("requeue", unknown), ("drop", unknown)):
        failed = parked(fleet, *arguments)
        assert (failed.returncode, unknown in failed.stderr) == (1, True)
        assert "`dovecote relay parked list`" in failed.stderr
    assert "no such event is parked" in parked(fleet, "requeue", "--key", "k").stderr
    for wrong in ("drop", "drop --all --key k", "requeue not-an-id"):
        assert parked(fleet, *wrong.split()).returncode == 2
    assert parked(fleet, "list").stdout == "nothing is parked\n"
