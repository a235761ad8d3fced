"""Events that cannot be published are parked, and operators decide about them."""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from dovecote.devstack import Stack
from outbox import Event
from outbox.schema import limit_events
from relay.postgres.desk import EVERYTHING, Desk, Which
from relay.postgres.parked import ASIDE, ParkedStore
from relay.rules.parking import ParkedEvent, Reason
from relay.rules.places.lsn import log_number
from tests.support.fix_stack import MakeTopic
from tests.support.parking import listed, parked
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
from tests.support.topics import alter_topic, delete_topic, make_topic, metric
from tests.support.waiting import consume, patient, until

UNCOMPRESSED = {"compression.type": "none"}


@pytest.fixture
def fleet(stack: Stack, database: str, tmp_path: Path) -> Iterator[Relays]:
    with relays(tmp_path, installed(database), stack.kafka.bootstrap) as started:
        yield started


def large(topic: str, number: int, key: str | None = "bad") -> Event:
    """Return an event whose record no topic of 3,000 bytes takes; its value is its number."""
    return Event(topic=topic, type="Large", key=key, value=" " * 4_999 + str(number))


def ready(relay: RelayProcess) -> bool:
    return relay.get("/readyz").status == 200


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
        assert f"parked event {too_large.id} for topic '{name}', key 'bad'" in relay.log
        assert metric(relay, "dovecote_relay_parked") == 3
        large_ones = metric(
            relay, "dovecote_relay_events_parked_total", 'reason="MSG_SIZE_TOO_LARGE"'
        )
        assert large_ones == 1
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


@pytest.mark.parametrize("capture", ["table", "wal"])
def test_topics_that_are_missing_hold_up_nobody(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, capture: str
) -> None:
    name = topic(1)
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        relay = fleet.active(capture=capture)
        commit(fleet.dsn, event(name, 0))
        published(fleet, name, 1)
        lost = [event(f"{fleet.name}-missing-{n}", n) for n in range(6)]
        asked = time.monotonic()
        commit(fleet.dsn, *lost, event(name, 1))
        published(fleet, name, 2)
        # It was 95 s. Everything takes longer on a busy machine.
        assert time.monotonic() - asked < patient(5)
        assert [row["id"] for row in listed(fleet)] == [each.id for each in lost]
        # A service that puts an id into the names of topics.
        for n in range(5):
            many = [event(f"{fleet.name}-{n}-{m}", m) for m in range(400)]
            commit(fleet.dsn, *many, event(name, 2 + n))
        published(fleet, name, 7)
        until(lambda: len(listed(fleet, "--limit", "3000")) == 2_006, within=30, what="all")
        assert ready(relay)
        assert relay.log.count("WARNING dovecote.relay: parked") <= 10


@pytest.mark.parametrize(
    ("mode", "capture"),
    [("exactly_once", "table"), ("at_least_once", "table"), ("exactly_once", "wal")],
)
def test_what_is_parked_for_a_topic_that_is_about_to_be_made_is_published_when_it_is(
    stack: Stack, database: str, tmp_path: Path, topic: MakeTopic, mode: str, capture: str
) -> None:
    name = topic(1)
    with relays(tmp_path, installed(database, capture), stack.kafka.bootstrap) as fleet:
        made = f"{fleet.name}-made"
        fleet.active(mode=mode, capture=capture, park_after="1h")
        commit(fleet.dsn, event(made, 0, key="a"), event(made, 0, key="b"), event(name, 0))
        published(fleet, name, 1)
        # The next active relay goes on waiting.
        fleet.started[0].kill()
        relay = fleet.active(mode=mode, capture=capture, park_after="1h")
        commit(fleet.dsn, event(made, 1, key="a"), event(name, 1))
        published(fleet, name, 2)
        make_topic(fleet.bootstrap, made)
        commit(fleet.dsn, *[event(made, n, key=k) for n in range(2, 50) for k in "ab"])
        relay.until_logged(f"can publish to {made} now")
        wanted = committed(fleet.dsn, made)
        assert difference(wanted, published(fleet, made, len(wanted))) == AGREE
        assert listed(fleet) == []


def test_a_topic_that_is_not_made_in_time_waits_for_a_person(
    fleet: Relays, topic: MakeTopic
) -> None:
    name, missing = topic(1), f"{fleet.name}-missing"
    relay = fleet.active(park_after="1s")
    first = event(missing, 0, key="k0")
    commit(fleet.dsn, first)
    relay.until_logged(f"parked event {first.id} for topic '{missing}'")
    assert "create the topic" in relay.log
    commit(fleet.dsn, *[event(missing, n, key=f"k{n % 3}") for n in range(1, 40)], event(name, 1))
    published(fleet, name, 1)
    assert len(listed(fleet)) == 40
    assert {row["code"] for row in listed(fleet)} <= {"UNKNOWN_TOPIC_OR_PART", "BEHIND"}
    # A requeue does not make anybody wait without need either.
    asked = time.monotonic()
    assert parked(fleet, "requeue", "--topic", missing, "--wait").returncode == 1
    assert time.monotonic() - asked < patient(5)
    assert max(row["attempt"] for row in listed(fleet)) == 2
    make_topic(fleet.bootstrap, missing)
    done = parked(fleet, "requeue", "--topic", missing, "--wait")
    assert (done.returncode, done.stdout) == (0, "requeued 40 events\n"), done.stderr + relay.log
    commit(fleet.dsn, event(missing, 40, key="k1"), event(missing, 40, key="new"))
    wanted = committed(fleet.dsn, missing)
    assert difference(wanted, published(fleet, missing, 42)) == AGREE
    assert relay.terminate() == 0


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_a_topic_that_is_deleted_while_it_is_published_to_holds_up_others_for_a_moment(
    fleet: Relays, topic: MakeTopic, mode: str
) -> None:
    name, gone = topic(1), f"{fleet.name}-gone"
    make_topic(fleet.bootstrap, gone)
    fleet.active(mode=mode, park_after="0s")
    commit(fleet.dsn, event(name, 0), event(gone, 0))
    published(fleet, gone, 1)
    delete_topic(fleet.bootstrap, gone)
    asked = time.monotonic()
    commit(fleet.dsn, event(gone, 1), event(name, 1))
    published(fleet, name, 2)
    # It was 66 s.
    assert time.monotonic() - asked < patient(15)
    until(lambda: listed(fleet), within=15, what="the event is parked")
    assert [row["code"] for row in listed(fleet)] == ["UNKNOWN_TOPIC_OR_PART"]


def test_topics_that_the_relay_does_not_serve_are_parked_whoever_writes_there(
    fleet: Relays, topic: MakeTopic
) -> None:
    served, other = topic(1), topic(1)
    progress = topic(1, cleanup_policy="compact")
    relay = fleet.active(
        progress_topic=progress,
        environ={"DOVECOTE_RELAY_TOPICS": json.dumps([served, progress, "dovecote*"])},
    )
    forged = Event(topic=progress, type="T", key=fleet.name, value={"format": 1})
    commit(fleet.dsn, forged, event(other, 1), event(served, 1), event(served, 2))
    published(fleet, served, 2)
    assert [row["code"] for row in listed(fleet)] == ["TOPIC_RESERVED", "TOPIC_NOT_ALLOWED"]
    assert parked(fleet, "requeue", "--all", "--wait").returncode == 1
    assert [row["attempt"] for row in listed(fleet)] == [2, 2]
    assert consume(fleet.bootstrap, other) == []
    values = [message.value() for message in consume(fleet.bootstrap, progress)]
    assert forged.value_bytes() not in values
    assert ready(relay)


def test_when_too_many_are_parked_everything_waits(fleet: Relays, topic: MakeTopic) -> None:
    name, other = topic(1), topic(1)
    relay = fleet.active(park_most=2, environ={"DOVECOTE_RELAY_TOPICS": json.dumps([name])})
    commit(fleet.dsn, event(other, 0), event(other, 1))
    until(lambda: len(listed(fleet)) == 2, within=10, what="two are parked")
    commit(fleet.dsn, event(name, 0), event(other, 2))
    relay.until_logged("2 events are parked, and park_most is 2")
    assert relay.get("/readyz").status == 503
    assert consume(fleet.bootstrap, name) == []
    assert parked(fleet, "drop", "--all").returncode == 0
    published(fleet, name, 1)
    assert [row["id"] for row in listed(fleet)] == [committed(fleet.dsn, other)[2]]


@pytest.mark.parametrize("which", ["id", "key", "all"])
def test_what_is_dropped_is_what_was_seen_whatever_its_number_by_then(
    database: str, which: str
) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        early, late = str(uuid.uuid4()), str(uuid.uuid4())
        store.park([unpublishable(late)], 1)
        wanted = {"id": Which(ids=[late]), "key": Which(key=b"k"), "all": Which(topic="orders")}
        assert desk.ask("drop", wanted[which]).events == 1
        # The batch failed. Read again, it has one more event, which comes earlier.
        aside = store.load(0).marks[9, late].number
        store.park([unpublishable(early, 7), unpublishable(late, replaces=aside)], 1)
        assert [event.id for event in desk.events(EVERYTHING, 10)] == [early, late]
        (command,) = store.commands()
        assert store.drop(command) == 1
        assert [event.id for event in desk.events(EVERYTHING, 10)] == [early]
        assert store.commands() == []


def test_what_is_left_is_counted_among_what_was_asked_for(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        seen = [unpublishable(str(uuid.uuid4()), position) for position in (7, 8, 9)]
        store.park(seen, 1)
        # An event that holds its key is requeued with all others of the key.
        requeued = desk.ask("requeue", Which(ids=[seen[0].row[1]]))
        assert (requeued.events, desk.left(requeued)) == (3, 3)
        store.refused_again(store.commands()[0], 1, Reason("TOPIC_EXCEPTION", "no such name"))
        assert desk.are_done(requeued)
        assert desk.left(requeued) == 3
        dropped = desk.ask("drop", Which(key=b"k"))
        store.park([unpublishable(str(uuid.uuid4()), 10)], 4)
        (command,) = store.commands()
        assert store.drop(command) == 3
        assert (dropped.events, desk.left(dropped), desk.left(requeued)) == (3, 0, 0)
        assert len(desk.events(EVERYTHING, 10)) == 1


def test_what_is_asked_of_an_event_that_is_read_again_is_done(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        id_ = str(uuid.uuid4())
        store.park([unpublishable(id_, holds=False)], 1)
        aside = store.load(0).marks[9, id_].number
        assert desk.ask("requeue", Which(ids=[id_])).events == 1
        store.park([unpublishable(id_, holds=False, replaces=aside)], 1)
        (command,) = store.commands()
        (due,) = store.due(command, after=0, most=10, most_bytes=1_000)
        assert (due.number, due.row[1]) == (1, id_)


def test_one_id_that_is_written_twice_to_the_log_is_two_events(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        id_ = str(uuid.uuid4())
        # Each is the first event of its transaction.
        both = [log_number(0x1_0000_0000, 1), log_number(0x2_0000_0000, 1)]
        store.park([unpublishable(id_, position) for position in both], 1)
        # The relay ends before progress passes them, and reads them again.
        marks = store.load(0).marks
        assert [(position, id_) for position in both] == list(marks)
        asked = desk.ask("requeue", Which(ids=[id_]))
        assert store.commands(of_aside=False) == []
        again = [unpublishable(id_, at, replaces=marks[at, id_].number) for at in both]
        store.park(again, 1)
        (command,) = store.commands(of_aside=False)
        due = store.due(command, after=0, most=10, most_bytes=1_000)
        assert [(each.number, each.row[0]) for each in due] == [(1, both[0]), (2, both[1])]
        store.published(due)
        store.finish(command)
        assert (desk.are_done(asked), desk.count()) == (True, 0)


def test_what_is_set_aside_stays_where_it_is_however_often_a_relay_begins(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store = ParkedStore(conn, "outbox", "shop")
        first, second = (unpublishable(str(uuid.uuid4()), position) for position in (7, 8))
        store.park([first], 4)
        numbers = {store.load(3).marks[7, first.row[1]].number for _ in range(100)}
        assert numbers == {ASIDE + 1}
        store.park([second], 4)
        marks = store.load(3).marks
        assert [marks[7, first.row[1]].number, marks[8, second.row[1]].number] == [
            ASIDE + 1,
            ASIDE + 2,
        ]


def test_what_is_asked_of_others_is_done_while_an_event_is_set_aside(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        settled, aside = (
            unpublishable(str(uuid.uuid4()), position, holds=False) for position in (7, 8)
        )
        store.park([settled, aside], 1)
        store.load(1)
        for event_ in (aside, settled):
            assert desk.ask("requeue", Which(ids=[event_.row[1]])).events == 1
        waits, goes_on = store.commands()
        assert store.commands(of_aside=False) == [goes_on]
        (due,) = store.due(goes_on, after=0, most=10, most_bytes=1_000)
        assert due.row[1] == settled.row[1]
        # A crash after its publication takes nothing back, and keeps what waits.
        store.tidy(goes_on.number, due.number, 1)
        assert [event_.id for event_ in desk.events(EVERYTHING, 10)] == [aside.row[1]]
        assert store.commands() == [waits, goes_on]
        store.park([unpublishable(aside.row[1], 8, holds=False, replaces=ASIDE + 1)], 2)
        assert store.commands(of_aside=False) == [waits, goes_on]


def unpublishable(
    id_: str, position: int = 9, *, holds: bool = True, replaces: int | None = None
) -> ParkedEvent:
    names, values = ["h", "h"], [None, b"\0"]
    row = (position, id_, 0, "orders", b"k", None, "T", "/", None, None, names, values)
    return ParkedEvent(row, Reason("MSG_SIZE_TOO_LARGE", "too large"), holds, replaces)


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
