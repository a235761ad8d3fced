"""A request for parked events is done to those that were meant."""

import random
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from relay.postgres.connect import connect
from relay.postgres.desk import EVERYTHING, Desk, Which
from relay.postgres.parked import ASIDE, ParkedStore
from relay.rules.held import Lane, lane_of
from relay.rules.parking import EventToPark, Reason
from relay.rules.places.lsn import log_number
from relay.rules.places.progress import LogPosition
from tests.support.relaying import (
    installed,
)


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
        assert store.drop(command) == (1, True)
        assert [event.id for event in desk.events(EVERYTHING, 10)] == [early]
        assert store.commands() == []


@pytest.mark.parametrize("text", ["or\0ders", "or\udcffders"])
def test_a_text_that_postgres_cannot_hold_selects_nothing(database: str, text: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        store.park([unpublishable(str(uuid.uuid4()))], 1)
        for which in (Which(topic=text), Which(type=text), Which(reason=text)):
            assert desk.newest(which, 10) == desk.events(which, 10) == []
            assert desk.ask("drop", which).events == 0
        assert len(desk.events(EVERYTHING, 10)) == 1


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
        assert store.drop(command) == (3, True)
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


def test_headers_and_keys_count_in_the_bytes_that_are_requeued_at_once(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        parked = []
        for number in range(6):
            event = unpublishable(str(uuid.uuid4()), number, holds=False)
            content = (random.randbytes(4_000), None, *event.row[6:10])
            row = (*event.row[:4], *content, ["a"], [random.randbytes(5_000)])
            parked.append(event._replace(row=row))
        store.park(parked, 1)
        desk.ask("requeue", EVERYTHING)
        command = store.commands()[0]
        # The event with which the bound is passed is the last one.
        due = store.due(command, after=0, most=10, most_bytes=10_000)
        assert [each.number for each in due] == [1, 2]


@pytest.mark.parametrize(
    ("zone", "time"),
    [
        ("Asia/Tokyo", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("America/New_York", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_event_of_any_time_is_listed_whatever_the_servers_zone(
    database: str, zone: str, time: datetime
) -> None:
    dsn = make_conninfo(installed(database), options=f"-c TimeZone={zone}")
    with connect(dsn, purpose="test") as conn:
        store, desk = ParkedStore(conn, "outbox", "shop"), Desk(conn, "outbox", "shop")
        event = unpublishable(str(uuid.uuid4()))
        at = (time - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        store.park([event._replace(row=(*event.row[:2], at, *event.row[3:]))], 1)
        assert [each.time for each in desk.events(EVERYTHING, 10)] == [time]


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


def test_what_the_log_does_not_bring_again_holds_its_key(database: str) -> None:
    with psycopg.connect(installed(database), autocommit=True) as conn:
        store = ParkedStore(conn, "outbox", "shop")
        begins = [0x1_0000_0000, 0x2_0000_0000, 0x3_0000_0000]
        places = [*(log_number(lsn, 1) for lsn in begins), 7]
        keys = [b"before", b"at", b"after", b"of the table"]
        ids = [str(uuid.uuid4()) for _ in places]
        for number, (id_, place, key) in enumerate(zip(ids, places, keys, strict=True), 1):
            store.park([unpublishable(id_, place, key=key)], number)
        # The transaction whose commit begins at the place is read again.
        known = store.load(0, LogPosition(begins[1]))
        assert [identity for identity, _ in known.marks] == [places[1], places[2], places[3]]
        assert (held(store), known.highest) == (lanes(b"before"), 1)
        # Another one begins where more is gone: those hold their keys again, after the first.
        known = store.load(0, LogPosition(begins[2]), above=10)
        assert [identity for identity, _ in known.marks] == [places[2], places[3]]
        assert (held(store), known.highest) == (lanes(b"before", b"at"), 11)


def held(store: ParkedStore) -> set[Lane]:
    return set(store.lanes())


def lanes(*keys: bytes) -> set[Lane]:
    return {lane_of(("orders", key)) for key in keys}


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
    id_: str,
    position: int = 9,
    *,
    holds: bool = True,
    replaces: int | None = None,
    key: bytes = b"k",
) -> EventToPark:
    names, values = ["h", "h"], [None, b"\0"]
    row = (position, id_, 0, "orders", key, None, "T", "/", None, None, names, values)
    return EventToPark(row, Reason("MSG_SIZE_TOO_LARGE", "too large"), holds, replaces)
