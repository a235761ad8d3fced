"""An outbox in the log in several shards: a slot each, taken over, changed, switched, missed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from dovecote.devstack.versions import POSTGRES
from outbox.schema import slots
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.kafka.publisher import TransactionalPublisher
from relay.operating import boundary
from relay.operating import reshard as resharding
from relay.postgres.capture.catalog import drop_left_slots
from relay.rules.places.progress import LogPosition
from relay.rules.sharding import divided
from tests.support.fix_stack import MakeTopic
from tests.support.load import KEYS, load
from tests.support.relayed import running
from tests.support.relaying import Relays, agrees, commit, event, published
from tests.support.shards import crew_of, in_log, key_of, names, seen, slots_of, wanted
from tests.support.waiting import until


def test_each_shard_reads_its_slot_and_a_standby_takes_over_any(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    in_log(fleet, 3)
    with load(fleet.dsn, name) as writers:
        crew = [fleet.start(shards=3, capture="wal") for _ in range(4)]

        def holders() -> dict[int, Any]:
            return {n: relay for relay in crew for n in range(3) if f"shard {n} of 3" in relay.log}

        until(lambda: len(holders()) == 3, within=30, what="a relay for each shard")
        (standby,) = [relay for relay in crew if relay not in holders().values()]
        writers.goes_on(50)
        holders()[1].kill()
        standby.until_logged("publishing from")
        assert "shard 1 of 3" in standby.log
        writers.goes_on(50)
    agrees(fleet, name)
    # Servers before 17 keep no slot on a standby.
    keeps = True if int(POSTGRES.default) >= 17 else None
    assert [found.slot and found.slot.failover for found in seen(fleet, 3)] == [keeps] * 3
    assert slots_of(fleet) == sorted(names(fleet, 3))


def test_the_number_of_shards_of_the_log_is_changed_while_services_write(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    use_wal(fleet.dsn, "outbox")
    fresh = wanted(fleet, 3)
    needs = pytest.raises(Refused, match="needs a slot of its own: run `dovecote relay reshard")
    with needs, running([fresh]):
        pass
    with load(fleet.dsn, name, writers=2):
        for shards in (1, 3, 2):
            assert resharding.reshard(wanted(fleet, shards))
            with psycopg.connect(fleet.dsn, autocommit=True) as asleep:
                # A relay that has slept through the change sees slots that it does not know.
                drop_left_slots(asleep, "outbox", divided(fleet.name, 4)[0])
            assert slots_of(fleet) == sorted(names(fleet, shards))
            with crew_of(fleet, shards):
                published(fleet, name, len(published(fleet, name, 1)) + 100)
    with crew_of(fleet, 2):
        agrees(fleet, name)
        with pytest.raises(Refused, match="end all relays of this outbox"):
            resharding.reshard(wanted(fleet, 5))
    assert not resharding.reshard(wanted(fleet, 2))


DURABLE = (
    (TransactionalPublisher, "publish"),
    (slots, "copy"),
    (slots, "drop"),
    (resharding, "change"),
)


def interruptible(
    monkeypatch: pytest.MonkeyPatch, *steps: tuple[Any, str]
) -> Callable[[int], None]:
    """Let steps of a change fail; return a function that sets how many succeed first."""
    left = 0

    def failing(target: Any, step: str) -> None:
        original = getattr(target, step)

        def done_in_time(*given: Any, **more: Any) -> Any:
            nonlocal left
            found = original(*given, **more)
            left -= 1
            if left == 0:
                raise ConnectionAbortedError
            return found

        monkeypatch.setattr(target, step, done_in_time)

    for each in steps:
        failing(*each)

    def allow(steps: int) -> None:
        nonlocal left
        left = steps

    return allow


def test_a_change_that_is_not_finished_leaves_out_nothing_written_meanwhile(
    fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old shard is published up to an end, and the log goes on behind it."""
    name = topic(2)
    use_wal(fleet.dsn, "outbox")
    with crew_of(fleet, 1):
        commit(fleet.dsn, event(name, 0))
        published(fleet, name, 1)
    commit(fleet.dsn, event(name, 1))
    chosen = boundary.in_log

    def in_log(conn: psycopg.Connection[tuple[object, ...]]) -> LogPosition:
        end = chosen(conn)
        for number in range(2, 9):
            commit(fleet.dsn, event(name, number))
        return end

    def refused(*_: object) -> None:
        msg = "an event was parked meanwhile"
        raise Refused(msg)

    monkeypatch.setattr(boundary, "in_log", in_log)
    monkeypatch.setattr(boundary, "make_slots", refused)
    with pytest.raises(Refused, match="an event was parked meanwhile"):
        resharding.reshard(wanted(fleet, 2))
    with crew_of(fleet, 1):
        published(fleet, name, 9)
    agrees(fleet, name)


def test_a_change_of_the_log_that_is_interrupted_anywhere_is_done_again(
    fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One piece becomes two shards, and each durable step fails in turn."""
    name = topic(2)
    use_wal(fleet.dsn, "outbox")
    with crew_of(fleet, 1):
        commit(fleet.dsn, *[event(name, n, key=f"k{key}") for n in range(20) for key in range(9)])
        published(fleet, name, 180)
    allow = interruptible(monkeypatch, *DURABLE)
    for steps in range(1, 30):
        commit(fleet.dsn, *[event(name, 20 + steps, key=f"k{key}") for key in range(9)])
        allow(steps)
        with suppress(ConnectionAbortedError):
            resharding.reshard(wanted(fleet, 2))
            break
    allow(-1)
    assert steps > 6, "not every step has failed"
    assert not resharding.reshard(wanted(fleet, 2))
    assert slots_of(fleet) == sorted(names(fleet, 2))
    with crew_of(fleet, 2):
        agrees(fleet, name)


def test_a_change_of_the_log_that_was_interrupted_can_be_taken_back(
    fleet: Relays, topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic(2)
    in_log(fleet, 2)
    with crew_of(fleet, 2):
        commit(fleet.dsn, *[event(name, 1, key=key) for key in KEYS])
        published(fleet, name, len(KEYS))
    commit(fleet.dsn, *[event(name, 2, key=key) for key in KEYS])
    # After the first new shard, which has the name of an old one.
    allow = interruptible(monkeypatch, (resharding, "_begin"))
    allow(1)
    with pytest.raises(ConnectionAbortedError):
        resharding.reshard(wanted(fleet, 3))
    allow(-1)
    assert slots_of(fleet) == sorted(names(fleet, 2) + names(fleet, 3))
    interrupted = pytest.raises(Refused, match="a change of their number was interrupted")
    with interrupted, crew_of(fleet, 2):
        pass
    assert resharding.reshard(wanted(fleet, 2))
    assert slots_of(fleet) == sorted(names(fleet, 2))
    with crew_of(fleet, 2):
        agrees(fleet, name)


def test_the_slot_of_a_shard_without_events_moves_on(fleet: Relays, topic: MakeTopic) -> None:
    name = topic(1)
    in_log(fleet, 2)
    ready = wanted(fleet, 2)
    often = ready.model_copy(
        update={"wal": type(ready.wal).model_validate({"heartbeat": "100ms"})}
    )
    with running([often] * 2), psycopg.connect(fleet.dsn, autocommit=True) as conn:
        for number in range(5):
            commit(fleet.dsn, event(name, number, key=key_of(0, 2)))
            conn.execute("SELECT pg_logical_emit_message(true, 'x', repeat('x', 1000000))")
        end = seen(fleet, 2)[1].end

        def moved() -> bool:
            return all(look.slot and (look.slot.confirmed or 0) >= end for look in seen(fleet, 2))

        until(moved, within=20, what="slots that move on")
        agrees(fleet, name)


def test_a_live_outbox_is_switched_there_and_back_in_shards(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(3)
    assert resharding.reshard(wanted(fleet, 3))
    with crew_of(fleet, 3):
        with load(fleet.dsn, name, writers=2) as writers:
            for _ in range(2):
                use_wal(fleet.dsn, "outbox")
                until(
                    lambda: all(found.slot and found.slot.active_pid for found in seen(fleet, 3)),
                    within=30,
                    what="each shard in the log",
                )
                writers.goes_on(40)
                use_table(fleet.dsn, "outbox")
                until(lambda: slots_of(fleet) == [], within=30, what="all slots dropped")
                writers.goes_on(40)
        agrees(fleet, name)


def test_a_shard_that_has_left_the_log_waits_for_no_other_and_can_come_back(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    in_log(fleet, 2)
    keys = [key_of(shard, 2) for shard in (0, 1)]
    alone = [wanted(fleet, 2, shard=0)]

    def write(number: int) -> None:
        commit(fleet.dsn, *[event(name, number, key=key) for key in keys])

    def departed() -> bool:
        return [found.state for found in seen(fleet, 2)] == ["table", "leaving"]

    write(0)
    with running(alone):
        published(fleet, name, 1)
        use_table(fleet.dsn, "outbox")
        until(departed, within=30, what="one shard back in the table")
        write(1)
        published(fleet, name, 2)
    with pytest.raises(Refused, match="on their way from the write-ahead log"):
        resharding.reshard(wanted(fleet, 3))
    with running(alone):
        write(2)
        published(fleet, name, 3)
        use_wal(fleet.dsn, "outbox")
        write(3)
        published(fleet, name, 4)
    use_table(fleet.dsn, "outbox")
    write(4)
    with crew_of(fleet, 2):
        until(lambda: slots_of(fleet) == [], within=30, what="all slots dropped")
        agrees(fleet, name)
