"""An outbox in the log in several shards: a slot each, taken over, changed, switched, missed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dovecote.devstack import Stack
from outbox import DovecoteError
from outbox.schema import slots
from outbox.schema.capture import installed as installed_capture
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.kafka.publisher import TransactionalPublisher
from relay.operating import reshard as resharding
from relay.operating.doctor import examine
from relay.postgres.capture.catalog import Look, drop_left_slots, look
from relay.rules.sharding import divided, shard_of
from tests.support.fix_stack import MakeTopic
from tests.support.load import KEYS, load
from tests.support.relayed import running
from tests.support.relaying import (
    AGREE,
    Relays,
    commit,
    committed,
    difference,
    drained,
    event,
    installed,
    published,
    relays,
)
from tests.support.shards import crew_of, in_log, wanted
from tests.support.waiting import until


@pytest.fixture
def fleet(stack: Stack, database: str, tmp_path: Path) -> Iterator[Relays]:
    """Starts relays of one outbox, in a database of its own."""
    with relays(tmp_path, installed(database), stack.kafka.bootstrap) as started:
        yield started


def seen(fleet: Relays, shards: int) -> list[Look]:
    with psycopg.connect(fleet.dsn) as conn:
        return [look(conn, "outbox", shard) for shard in divided(fleet.name, shards)]


def slots_of(fleet: Relays) -> list[str]:
    with psycopg.connect(fleet.dsn) as conn:
        return slots.existing(conn, installed_capture(conn, "outbox").slot)


def names(fleet: Relays, shards: int) -> list[str]:
    with psycopg.connect(fleet.dsn) as conn:
        return slots.slot_names(installed_capture(conn, "outbox").slot, shards)


def key_of(shard: int, shards: int) -> str:
    return next(key for key in KEYS if shard_of(key.encode(), "", shards) == shard)


def agree(fleet: Relays, name: str) -> bool:
    return difference(committed(fleet.dsn, name), drained(fleet, name)) == AGREE


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
    assert agree(fleet, name)
    assert [found.slot is not None and found.slot.failover for found in seen(fleet, 3)] == [
        True
    ] * 3
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
        assert agree(fleet, name)
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
        assert agree(fleet, name)


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
        assert agree(fleet, name)


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
        assert agree(fleet, name)


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
        assert agree(fleet, name)


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
        assert agree(fleet, name)


def test_a_slot_that_is_missing_stops_its_shard_alone_and_its_gap_is_accepted_alone(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    in_log(fleet, 2)
    keys = [key_of(shard, 2) for shard in (0, 1)]
    with crew_of(fleet, 2):
        commit(fleet.dsn, *[event(name, 0, key=key) for key in keys])
        published(fleet, name, 2)
    missing = names(fleet, 2)[1]
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [missing])
    commit(fleet.dsn, *[event(name, 1, key=key) for key in keys])
    way_out = r"1_of_2 is missing.*--accept-gap --shard 1`"
    with pytest.raises(Refused, match=way_out), running([wanted(fleet, 2, shard=1)]):
        pass
    said = [str(each) for each in examine(wanted(fleet, 2), divided(fleet.name, 2)[1])]
    assert any(missing in line and "--accept-gap --shard 1" in line for line in said)
    with pytest.raises(DovecoteError, match=f"{missing} is missing"):
        use_wal(fleet.dsn, "outbox")
    use_wal(fleet.dsn, "outbox", accept_gap=True, shard=1)
    commit(fleet.dsn, *[event(name, 2, key=key) for key in keys])
    with crew_of(fleet, 2):
        found = difference(committed(fleet.dsn, name), published(fleet, name, 5))
    assert len(found.lost) == 1
    assert found._replace(lost=set()) == AGREE


@pytest.mark.parametrize(
    ("shard", "lost", "began"), [(1, 1, True), (1, 1, False), (None, 2, True)]
)
def test_a_shard_whose_slot_is_missing_before_it_came_from_the_table_goes_on_too(
    fleet: Relays, topic: MakeTopic, shard: int | None, lost: int, *, began: bool
) -> None:
    """
    The table's events are published, and the log has a gap, whether or not the shard had begun.
    """
    name = topic(1)

    def write(number: int) -> None:
        commit(fleet.dsn, *[event(name, number, key=key_of(shard, 2)) for shard in (0, 1)])

    assert resharding.reshard(wanted(fleet, 2))
    write(0)
    if began:
        with crew_of(fleet, 2):
            published(fleet, name, 2)
    write(1)
    use_wal(fleet.dsn, "outbox")
    write(2)
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        conn.execute("SELECT pg_drop_replication_slot(%s)", [names(fleet, 2)[1]])
    way_out = pytest.raises(Refused, match=r"1_of_2 is missing.*--accept-gap --shard 1`")
    with way_out, running([wanted(fleet, 2, shard=1)]):
        pass
    use_wal(fleet.dsn, "outbox", accept_gap=True, shard=shard)
    write(3)
    with crew_of(fleet, 2):
        published(fleet, name, 8 - lost)
        use_table(fleet.dsn, "outbox")
        until(lambda: slots_of(fleet) == [], within=30, what="all slots dropped")
        write(4)
        found = difference(committed(fleet.dsn, name), published(fleet, name, 10 - lost))
    assert len(found.lost) == lost
    assert found._replace(lost=set()) == AGREE


def test_no_slot_goes_that_was_not_asked_for(
    fleet: Relays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "_TRIES", 3)
    use_wal(fleet.dsn, "outbox")
    was = [found.slot for found in seen(fleet, 1)]
    with pytest.raises(DovecoteError, match=r"no slot of shard 1 .* in one piece"):
        use_wal(fleet.dsn, "outbox", accept_gap=True, shard=1)
    assert [found.slot for found in seen(fleet, 1)] == was
    assert resharding.reshard(wanted(fleet, 2))
    both = [found.slot for found in seen(fleet, 2)]
    used = pytest.raises(DovecoteError, match=f"{names(fleet, 2)[1]} is in use.* no slot was dro")
    with running([wanted(fleet, 2, shard=1)]):
        until(lambda: (slot := seen(fleet, 2)[1].slot) and slot.active_pid, within=20, what="use")
        with used:
            use_wal(fleet.dsn, "outbox", accept_gap=True)
    assert seen(fleet, 2)[0].slot == both[0]


def test_slots_left_of_another_number_are_dropped_by_a_relay(fleet: Relays) -> None:
    in_log(fleet, 2)
    stray = names(fleet, 3)[0]
    with psycopg.connect(fleet.dsn, autocommit=True) as conn:
        slots.copy(fleet.dsn, conn, names(fleet, 2)[0], [stray])
    said = [str(each) for each in examine(wanted(fleet, 2), divided(fleet.name, 2)[0])]
    assert any(stray in line and "of another number of shards" in line for line in said)
    with crew_of(fleet, 2):
        until(lambda: slots_of(fleet) == sorted(names(fleet, 2)), within=20, what="two slots")


def test_who_is_refused_under_a_wrong_name_is_in_nobodys_way(
    fleet: Relays, topic: MakeTopic
) -> None:
    name = topic(1)
    use_wal(fleet.dsn, "outbox")

    def moved() -> bool:
        (found,) = seen(fleet, 1)
        return bool(found.slot and (found.slot.confirmed or 0) > (found.began_at or 0))

    with crew_of(fleet, 1):
        commit(fleet.dsn, event(name, 0))
        published(fleet, name, 1)
        until(moved, within=20, what="a slot that moves on")
    wrong = {"name": f"{fleet.name}x", "progress_topic": f"dovecote.progress.{fleet.name}x"}
    no_progress = pytest.raises(Refused, match="but there is no progress that says so")
    with no_progress:
        resharding.reshard(wanted(fleet, 2).model_copy(update=wrong))
    with psycopg.connect(fleet.dsn) as conn:
        assert conn.execute("SELECT name FROM outbox.sharding").fetchall() == [(fleet.name,)]
    with no_progress, running([wanted(fleet, 1).model_copy(update=wrong)]):
        pass
    assert resharding.reshard(wanted(fleet, 2))
    assert use_wal(fleet.dsn, "outbox") == names(fleet, 2)


def test_names_with_different_numbers_do_not_share_the_log(fleet: Relays) -> None:
    assert resharding.reshard(wanted(fleet, 2))
    other = wanted(fleet, 1).model_copy(update={"name": f"{fleet.name}-other"})
    assert resharding.reshard(other)
    with pytest.raises(DovecoteError, match=r"is published with shards = 2, and .* shards = 1"):
        use_wal(fleet.dsn, "outbox")
    with psycopg.connect(fleet.dsn) as conn:
        conn.execute("DELETE FROM outbox.sharding WHERE name = %s", [other.name])
    assert len(use_wal(fleet.dsn, "outbox")) == 2
