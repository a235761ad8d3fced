"""Slots of shards are missed, left and dropped each for itself."""

import psycopg
import pytest

from outbox import DovecoteError
from outbox.schema import slots
from outbox.schema.capture import use_table, use_wal
from relay.errors import Refused
from relay.operating import reshard as resharding
from relay.operating.doctor import examine
from relay.rules.sharding import divided
from tests.support.fix_stack import MakeTopic
from tests.support.relayed import running
from tests.support.relaying import AGREE, Relays, commit, committed, difference, event, published
from tests.support.shards import crew_of, in_log, key_of, names, seen, slots_of, wanted
from tests.support.waiting import until


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
