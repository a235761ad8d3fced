"""An outbox in several shards: shared out, taken over, refused in another number."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql

from relay.errors import Refused
from relay.kafka.progress_topic import ProgressTopic
from relay.kafka.publisher import TransactionalPublisher
from relay.operating import reshard as resharding
from relay.operating.doctor import misnumbered
from relay.operating.status import status
from relay.postgres.capture.window import own
from relay.postgres.desk import desk
from relay.rules.places.progress import Cursor
from relay.rules.sharding import divided, shard_of
from relay.settings import RelaySettings
from tests.support.commands import relay_command
from tests.support.fix_stack import MakeTopic
from tests.support.load import load
from tests.support.relayed import running
from tests.support.relaying import RelayProcess, Relays, agrees, commit, event, published
from tests.support.shards import crew_of, wanted
from tests.support.waiting import patient, until

SHARDS = 4


def active(crew: list[RelayProcess]) -> dict[int, RelayProcess]:
    """Return the relay that publishes each shard."""
    return {
        number: relay
        for relay in crew
        for number in range(SHARDS)
        if f"shard {number} of {SHARDS}" in relay.log
    }


def all_active(crew: list[RelayProcess]) -> dict[int, RelayProcess]:
    """Wait until each shard has a relay."""
    until(lambda: len(active(crew)) == SHARDS, within=30, what="a relay for each shard")
    return active(crew)


def test_postgres_and_the_relay_agree_on_the_shard_of_every_event(fleet: Relays) -> None:
    keys = [None, b"", b"\0", "Schlüssel".encode(), *[f"k{n}".encode() for n in range(300)]]
    with psycopg.connect(fleet.dsn) as conn:
        conn.execute(
            "SELECT outbox.append('t', key, NULL, 'T') FROM unnest(%s::bytea[]) AS key", [keys]
        )
        query = sql.SQL("SELECT key, id::text FROM outbox.events WHERE {}")
        for shard in divided("x", 7):
            rows = conn.execute(query.format(own(shard)), {}).fetchall()
            assert len(rows) > 10
            assert {shard_of(key, id_, 7) for key, id_ in rows} == {shard.number}


def test_processes_share_the_shards_and_a_standby_takes_over_any_of_them(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    with load(fleet.dsn, name, writers=2):
        crew = [fleet.start(shards=SHARDS) for _ in range(SHARDS + 1)]
        holders = all_active(crew)
        assert len({relay.pid for relay in holders.values()}) == SHARDS
        (standby,) = [relay for relay in crew if relay not in holders.values()]
        holders[2].kill()
        standby.until_logged(f"shard 2 of {SHARDS}")
        until(lambda: "publishing from" in standby.log, within=30, what="the shard goes on")
    agrees(fleet, name)
    held = [
        f'dovecote_relay_active{{outbox="{fleet.name}.shard-{number}"}} {float(number == 2)}'
        for number in range(SHARDS)
    ]

    def metrics() -> str:
        body = standby.get("/metrics").body
        return body if all(each in body for each in held) else ""

    body = until(metrics, within=20, what="shard 2 alone is counted")
    assert body.count("# TYPE dovecote_relay_active gauge") == 1


def test_a_shard_without_events_follows_those_of_others(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    (idle,) = {0, 1} - {shard_of(b"key", "", 2)}
    own = wanted(fleet, 2).of(divided(fleet.name, 2)[idle])
    progress = ProgressTopic(own.progress_topic, own.kafka, timeout=patient(10))
    with crew_of(fleet, 2), psycopg.connect(fleet.dsn) as conn:
        commit(fleet.dsn, event(name, 1))
        row = conn.execute("SELECT xid::text FROM outbox.events").fetchone()
        assert row is not None

        def has_passed() -> bool:
            found = progress.peek(own.name)
            return (
                found is not None
                and isinstance(found.cursor, Cursor)
                and found.cursor.since.sees(int(row[0]))
            )

        until(has_passed, within=20, what="progress behind an event of the other shard")
    assert len(published(fleet, name, 1)) == 1


def test_no_row_goes_that_a_shard_has_not_published(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    commit(fleet.dsn, *[event(name, 1, key=f"k{n}") for n in range(50)])
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        query = (
            "SELECT outbox.truncate_leaf(number, '0') FROM outbox.leaves() WHERE heap_bytes > 0"
        )
        with running([wanted(fleet, 2, shard=0)]):
            published(fleet, name, 1)
            assert conn.execute(query).fetchall() == [(f"unpublished by {fleet.name}.shard-1",)]
        with crew_of(fleet, 2):
            agrees(fleet, name)


def test_another_number_of_shards_is_refused(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    commit(fleet.dsn, event(name, 1))
    first = fleet.active()
    published(fleet, name, 1)
    divided_ = fleet.start(shards=2)
    assert divided_.wait() == 1
    assert f"outbox '{fleet.name}' is published in one piece" in divided_.log
    assert "dovecote relay reshard" in divided_.log
    require_told(wanted(fleet, 2), "is published in one piece")
    with pytest.raises(Refused, match="in one piece"), desk(wanted(fleet, 2, shard=1)):
        pytest.fail("nothing is parked there")
    assert misnumbered(wanted(fleet, 1)) is None
    assert first.terminate() == 0


def require_told(other: RelaySettings, what: str) -> None:
    """Check that commands that only look report another number."""
    wrong = misnumbered(other)
    assert wrong is not None
    assert wrong.level == "fail"
    assert what in wrong.what
    assert "dovecote relay reshard" in wrong.resolve
    with pytest.raises(Refused, match=what):
        status(other, other.own_shards()[0])


def test_the_number_of_shards_is_changed_while_services_write(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    with load(fleet.dsn, name, writers=2):
        for shards in (1, 3, 2):
            assert resharding.reshard(wanted(fleet, shards))
            with crew_of(fleet, shards):
                published(fleet, name, len(published(fleet, name, 1)) + 100)
    with crew_of(fleet, 2):
        agrees(fleet, name)
        with pytest.raises(Refused, match="end all relays of this outbox"):
            resharding.reshard(wanted(fleet, 5))
    require_told(wanted(fleet, 1), "is published in 2 shards")
    assert not resharding.reshard(wanted(fleet, 2))
    with pytest.raises(Refused, match="is published in 2 shards"), crew_of(fleet, 1):
        pass


def test_a_change_that_is_interrupted_anywhere_is_done_again(
    fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards become three, and each of the writes to Kafka fails in turn."""
    name = topic(2)
    with crew_of(fleet, 2):
        commit(fleet.dsn, *[event(name, n, key=f"k{key}") for n in range(20) for key in range(9)])
        published(fleet, name, 180)
    left = 0

    def interrupted(write: Callable[..., None]) -> Callable[..., None]:
        def in_time(*arguments: Any) -> None:
            nonlocal left
            write(*arguments)
            left -= 1
            if left == 0:
                raise ConnectionAbortedError

        return in_time

    for name_of_write in ("publish", "mark"):
        write = getattr(TransactionalPublisher, name_of_write)
        monkeypatch.setattr(TransactionalPublisher, name_of_write, interrupted(write))
    for writes in range(1, 40):
        commit(fleet.dsn, *[event(name, 20 + writes, key=f"k{key}") for key in range(9)])
        left = writes
        with suppress(ConnectionAbortedError):
            assert resharding.reshard(wanted(fleet, 3))
            break
    assert left > 0, "it was interrupted whenever it was tried"
    assert writes > 4, "not every write has failed"
    assert not resharding.reshard(wanted(fleet, 3))
    monkeypatch.undo()
    with crew_of(fleet, 3):
        agrees(fleet, name)


def test_the_command_changes_the_number(fleet: Relays) -> None:
    for way in ("", ", as it was before"):
        done = relay_command("reshard", fleet, shards=3)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"outbox {fleet.name!r} is published with `shards = 3`{way}\n"


def test_parked_events_are_those_of_a_shard_and_keep_the_number(
    fleet: Relays, topic: MakeTopic
) -> None:
    name, missing = topic(1), f"missing-{fleet.name}"
    owner = shard_of(b"key", "", 2)
    both = [wanted(fleet, 2, park_after="1s")] * 2
    with running(both):
        commit(fleet.dsn, event(missing, 1), event(name, 1, key="other"))
        until(
            lambda: (
                [status(both[0], each).parked for each in divided(fleet.name, 2)]
                == [int(owner == 0), int(owner == 1)]
            ),
            within=30,
            what="a parked event",
        )
        assert len(published(fleet, name, 1)) == 1
    with pytest.raises(Refused, match="1 events are parked"):
        resharding.reshard(wanted(fleet, 3))
    listed = [
        relay_command("parked", fleet, "list", shards=2, environ=more)
        for more in ({}, {"DOVECOTE_RELAY_SHARD": str(owner)})
    ]
    assert "has 2 shards: name one" in listed[0].stderr
    assert "1 of 1 parked event" in listed[1].stdout
