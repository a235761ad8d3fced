"""A command that was cut off, and wakes up when others have gone on, changes nothing any more."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outbox.schema import slots
from outbox.schema.capture import use_table, use_wal
from relay.errors import Outage, RelayError
from relay.operating import reshard as resharding
from relay.postgres.desk import EVERYTHING, Action, Asked, desk
from relay.postgres.parked import ParkedStore
from relay.postgres.shard_count import in_force
from relay.settings import RelaySettings
from tests.support.fix_stack import MakeTopic, Servers
from tests.support.parking import poison
from tests.support.relaying import (
    AGREE,
    Relays,
    commit,
    committed,
    difference,
    drained,
    event,
    installed,
    relays,
)
from tests.support.shards import crew_of, wanted
from tests.support.stops import Stop, Stops, end_sessions
from tests.support.waiting import patient

PARTS = ("_fenced", "_publish_up_to", "_begin")
STOPS = [
    (Stop("_fenced", 1, "open"), "relays"),
    (Stop("_fenced", 2, "read"), "command"),
    (Stop("_publish_up_to", 1, "open"), "relays"),
    (Stop("_publish_up_to", 2, "publish"), "command"),
    (Stop("_begin", 1, "open"), "relays"),
    (Stop("_begin", 1, "mark"), "command"),
    (Stop("_begin", 1, "publish"), "relays"),
    # Only the command itself can go on by now.
    (Stop("_begin", 2, "open"), "command"),
    (Stop("_begin", 2, "publish"), "command"),
]
"""Where a change of the number is held, and who goes on meanwhile."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Stops:
    return Stops(monkeypatch)


@pytest.fixture(params=["table", "wal"])
def fleet(
    stack: Servers, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Relays]:
    with relays(tmp_path, installed(database), stack.kafka.bootstrap) as started:
        resharding.reshard(wanted(started, 2))
        if request.param == "wal":
            use_wal(database, "outbox")
        yield started


def number(fleet: Relays) -> int:
    with psycopg.connect(fleet.dsn) as conn:
        return in_force(conn, "outbox", fleet.name) or 1


def more(fleet: Relays, topic: str, first: int) -> None:
    commit(
        fleet.dsn, *[event(topic, first + n, key=f"k{key}") for n in range(3) for key in "abcd"]
    )


def test_a_change_of_the_number_that_is_woken_doubles_and_loses_nothing(
    fleet: Relays, topic: MakeTopic, stops: Stops
) -> None:
    name = topic(2)
    stops.watch(resharding, *PARTS)
    for turn, (stop, rival) in enumerate(STOPS):
        shards = number(fleet)
        change = partial(resharding.reshard, wanted(fleet, 5 - shards))
        more(fleet, name, 100 * turn)
        with stops.running(change, stop) as task:
            assert not task.done(), f"it ended before {stop}: {stops.steps}"
            end_sessions(fleet.dsn)
            if rival == "command":
                assert change()
                shards = 5 - shards
            with crew_of(fleet, shards):
                more(fleet, name, 100 * turn + 10)
                drained(fleet, name)
                error = stops.wake(task)
                more(fleet, name, 100 * turn + 20)
                found = difference(committed(fleet.dsn, name), drained(fleet, name))
                assert found == AGREE, f"woken at {stop}"
        assert isinstance(error, RelayError), f"woken at {stop}"
        assert number(fleet) == shards


def use_wal_anew(dsn: str, schema: str) -> None:
    use_wal(dsn, schema, accept_gap=True)


@pytest.mark.parametrize(
    ("command", "before", "rivals"),
    [
        (use_wal, [], []),
        (use_wal, [], [use_wal]),
        (use_wal_anew, [use_wal], [use_wal_anew]),
        (use_wal_anew, [use_wal], [use_table]),
        (use_table, [use_wal], [use_table, use_wal]),
    ],
    ids=["wal-nobody", "wal-wal", "gap-gap", "gap-table", "table-wal"],
)
def test_a_change_of_the_capture_that_is_woken_at_any_step_changes_nothing(
    database: str,
    stops: Stops,
    command: Callable[[str, str], object],
    before: list[Callable[[str, str], object]],
    rivals: list[Callable[[str, str], object]],
) -> None:
    installed(database)
    stops.watch(slots, "make", "copy")
    with stops.running(partial(command, database, "outbox"), Stop("", 0, "never")) as task:
        task.result(patient(60))
    for at in range(1, len(stops.steps)):
        as_new(database)
        for each in before:
            each(database, "outbox")
        stop = Stop("", 0, "", at)
        with stops.running(partial(command, database, "outbox"), stop) as task:
            if task.done():
                break
            end_sessions(database)
            for each in rivals:
                each(database, "outbox")
            known = state_of(database)
            assert stops.wake(task) is not None, stops.steps[at]
            assert state_of(database) == known, stops.steps[at]
    assert at > 5


@pytest.mark.parametrize("action", ["requeue", "drop"])
def test_what_is_asked_of_parked_events_is_asked_at_once_or_not_at_all(
    database: str, stops: Stops, action: Action
) -> None:
    installed(database)
    given = {"dsn": "host=h", "name": "shop", "kafka": {"bootstrap.servers": "nowhere"}}
    settings = RelaySettings.model_validate(given).model_copy(update={"dsn": database})

    def ask() -> Asked:
        with desk(settings) as found:
            return found.ask(action, EVERYTHING)

    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SELECT outbox.settle_shards('shop', '{shop}')")
        ParkedStore(conn, "outbox", "shop").park(poison(2), 1)
        with stops.running(ask, Stop("", 0, "never")) as task:
            assert task.exception(patient(60)) is None
        query = "DELETE FROM outbox.parked_commands RETURNING number"
        assert len(conn.execute(query).fetchall()) == 1
        for at in range(1, len(stops.steps)):
            with stops.running(ask, Stop("", 0, "", at)) as task:
                assert not task.done()
                end_sessions(database, besides=conn)
                assert isinstance(stops.wake(task), Outage), stops.steps[at]
                assert conn.execute(query).fetchall() == [], stops.steps[at]


def as_new(dsn: str) -> None:
    """Drop the slots and the outbox, and install it again."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database()"
        )
        conn.execute("DROP SCHEMA outbox CASCADE")
    installed(dsn)


def state_of(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as conn:
        return [
            conn.execute(query).fetchall()
            for query in (
                "SELECT to_jsonb(r) FROM outbox.reading AS r",
                "SELECT prosrc FROM pg_proc WHERE proname = 'writes_to_wal'",
                "SELECT slot_name, restart_lsn FROM pg_replication_slots WHERE NOT temporary",
                "SELECT pubname FROM pg_publication ORDER BY 1",
            )
        ]
