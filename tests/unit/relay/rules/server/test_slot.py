"""Each state of a slot is reported with its remedy, and a relay goes on only from a sound one."""

from dataclasses import replace

import pytest

from relay.rules.places.progress import Cursor, LogPosition, Origin, Place, Progress, at
from relay.rules.places.snapshot import BEGINNING, Snapshot
from relay.rules.server.slot import (
    Beginning,
    Budget,
    Slot,
    entered,
    fault,
    mismatch,
    place_fault,
    resume,
    table_fault,
)

NAME = "dovecote_5_6"
BEGUN = Beginning(100, Snapshot(7, 9))
CATALOG = {
    "slot_name": NAME,
    "plugin": "pgoutput",
    "database": "shop",
    "confirmed_flush_lsn": "0/64",
    "restart_lsn": "0/60",
    "wal_status": "reserved",
    "active_pid": None,
}
SLOT = Slot.from_catalog(CATALOG)
HERE = Origin("7", 5, 6, 1, "0/FFFF", Snapshot(90, 100))


def progress(place: Place) -> Progress:
    return at("shop", HERE, place)


def test_columns_that_an_older_server_lacks_are_unknown() -> None:
    assert (SLOT.confirmed, SLOT.restart, SLOT.failover, SLOT.invalidation) == (
        100,
        96,
        None,
        None,
    )
    newer = Slot.from_catalog({**CATALOG, "failover": True, "invalidation_reason": None})
    assert newer.failover is True
    assert fault(newer, NAME, "shop", BEGUN, place=None) is None


@pytest.mark.parametrize(
    ("slot", "beginning", "says", "resolve"),
    [
        (None, BEGUN, "is missing", "--accept-gap"),
        (replace(SLOT, plugin="wal2json"), BEGUN, "another one: plugin wal2json", "--accept-gap"),
        (replace(SLOT, database="till"), BEGUN, "database till", "--accept-gap"),
        (replace(SLOT, wal_status="lost"), BEGUN, "max_slot_wal_keep_size", "--accept-gap"),
        (replace(SLOT, invalidation="idle_timeout"), BEGUN, "(idle_timeout)", "--accept-gap"),
        (replace(SLOT, restart=None), BEGUN, "was invalidated", "--accept-gap"),
    ],
)
def test_a_slot_that_cannot_be_read_is_told_with_its_resolution(
    slot: Slot | None, beginning: Beginning, says: str, resolve: str
) -> None:
    found = fault(slot, NAME, "shop", beginning, place=None)
    assert found is not None
    assert says in found.what
    assert resolve in found.resolve


@pytest.mark.parametrize(
    ("place", "behind"),
    [
        (None, "0/64"),
        (Cursor(), "0/64"),
        (LogPosition(99), "0/64"),
        (LogPosition(200, 5), "0/C8"),
        (Cursor(log=150), "0/96"),
    ],
)
def test_of_a_slot_that_is_missing_only_what_is_not_published_is_missed(
    place: Place | None, behind: str
) -> None:
    found = fault(None, NAME, "shop", BEGUN, place=place)
    assert found is not None
    assert f"events committed after {behind} cannot be read" in found.what


def test_of_several_shards_the_gap_of_one_alone_is_accepted() -> None:
    one = fault(None, f"{NAME}_11_of_12", "shop", BEGUN, place=None)
    assert one is not None
    assert one.resolve.startswith(
        "`dovecote init outbox --capture wal --accept-gap --shard 11` makes"
    )
    whole = fault(None, NAME, "shop", BEGUN, place=None)
    assert whole is not None
    assert whole.resolve.startswith("`dovecote init outbox --capture wal --accept-gap` makes")


@pytest.mark.parametrize(
    ("others", "pieces"),
    [({f"{NAME}_0_of_2", f"{NAME}_1_of_2"}, "2 shards"), ({NAME}, "one piece")],
)
def test_who_has_published_nothing_is_not_told_to_make_the_slots_of_others_anew(
    others: set[str], pieces: str
) -> None:
    mine = NAME if len(others) == 2 else f"{NAME}_0_of_3"
    found = fault(None, mine, "shop", BEGUN, place=None, others=others)
    assert found is not None
    assert f"no replication slot {mine}, but {', '.join(sorted(others))}" in found.what
    assert f"published in {pieces}" in found.what
    assert found.resolve.startswith("set `name`, ")
    # After a change of the number, the earlier slots are left for a while.
    lost = fault(None, mine, "shop", BEGUN, place=LogPosition(200), others=others)
    assert lost is not None
    assert "--accept-gap" in lost.resolve


@pytest.mark.parametrize("status", ["reserved", "extended", "unreserved", None])
def test_a_sound_slot_has_no_fault(status: str | None) -> None:
    assert fault(replace(SLOT, wal_status=status), NAME, "shop", BEGUN, place=None) is None


@pytest.mark.parametrize(
    ("confirmed", "place", "says"),
    [
        (201, LogPosition(200, 5), "begins at 0/C9, beyond what is published (0/C8, 5 events"),
        (101, None, "there is no progress that says so"),
        (101, Cursor(), "there is no progress that says so"),
        (200, LogPosition(200), None),
        (100, LogPosition(200), None),
        (100, None, None),
        (100, Cursor(), None),
        (101, Cursor(log=100), "there is no progress that says so"),
        (150, Cursor(log=150), None),
        (100, LogPosition(99), "after the log had been left for the table under another `name`"),
    ],
)
def test_a_slot_must_not_be_ahead_of_progress(
    confirmed: int, place: Place | None, says: str | None
) -> None:
    found = place_fault(replace(SLOT, confirmed=confirmed), BEGUN, place)
    assert (found is None) == (says is None)
    if found is not None and says is not None:
        assert says in found.what
        assert "--accept-gap" in found.resolve


def test_a_gap_that_was_accepted_is_passed_over() -> None:
    anew, old = Beginning(300, None), LogPosition(200, 5)
    assert place_fault(replace(SLOT, confirmed=300), anew, old) is None
    assert resume(anew, old) == LogPosition(300)


def test_the_table_is_read_first_if_there_was_one() -> None:
    cursor = Cursor(Snapshot(3, 4))
    assert resume(BEGUN, None) == Cursor(BEGINNING)
    assert resume(BEGUN, cursor) == cursor
    assert resume(BEGUN, LogPosition(150, 2)) == LogPosition(150, 2)
    assert resume(Beginning(100, None), None) == LogPosition(100)
    assert entered(BEGUN, Cursor(Snapshot(8, 8)), 180) == LogPosition(100, 0, Snapshot(8, 8), 180)


def test_a_log_that_was_left_is_gone_on_with_where_it_was_left() -> None:
    left = Cursor(Snapshot(20, 20), log=150)
    assert resume(BEGUN, left) == left
    assert entered(BEGUN, left, 180) == LogPosition(150, 0, Snapshot(20, 20), 180)
    # There was another slot since, so nothing of the log before it is missing.
    anew = Beginning(160, Snapshot(30, 30))
    assert entered(anew, left, 180) == LogPosition(160, 0, Snapshot(20, 20), 180)


def test_the_table_is_gone_on_with_only_by_who_published_the_log_before() -> None:
    for place in (None, Cursor(), Cursor(log=100)):
        assert table_fault(None, place) is None
    assert table_fault(100, None) is None
    assert table_fault(100, Cursor(log=100)) is None
    for elsewhere in (Cursor(), Cursor(log=99), LogPosition(150)):
        found = table_fault(100, elsewhere)
        assert found is not None
        assert "published from there under another `name`" in found.what


def test_a_capture_that_is_insisted_on_must_be_installed() -> None:
    assert all(mismatch("auto", state) is None for state in ("table", "wal", "leaving"))
    assert mismatch("table", "table") is None
    assert all(mismatch("wal", state) is None for state in ("wal", "leaving"))
    assert all(
        "are in the write-ahead log" in str(mismatch("table", s)) for s in ("wal", "leaving")
    )
    assert "are in the table" in str(mismatch("wal", "table"))


def test_progress_of_the_table_does_not_fit_a_slot_that_ignores_the_table() -> None:
    found = place_fault(SLOT, Beginning(100, None), Cursor())
    assert found is not None
    assert "is that of the table" in found.what
    assert "--accept-gap" in found.resolve
    assert place_fault(SLOT, Beginning(100, None), Cursor(log=100)) is None


def test_progress_of_the_table_goes_on_behind_a_gap_that_was_accepted() -> None:
    anew, cursor = Beginning(100, None, Snapshot(7, 9)), Cursor(Snapshot(3, 4))
    assert place_fault(SLOT, anew, cursor) is None
    assert resume(anew, cursor) == cursor
    assert resume(anew, None) == LogPosition(100)
    assert resume(replace(anew, begins_in_table=True), None) == Cursor(BEGINNING)


@pytest.mark.parametrize(
    ("stop", "safe", "limit"),
    [(None, None, None), (2_000, None, 2_000), (None, 900, 1_000), (2_000, 900, 1_000)],
)
def test_the_limit_is_that_of_the_relay_or_of_the_server_whichever_comes_first(
    stop: int | None, safe: int | None, limit: int | None
) -> None:
    assert Budget(None, stop).limit(replace(SLOT, safe=safe), 100) == limit


def test_the_budget_warns_and_then_is_spent() -> None:
    budget = Budget(1_000, 2_000)
    assert budget.warning(SLOT, 1_000) is None
    assert "holds back 1,001 bytes" in (budget.warning(SLOT, 1_001) or "")
    assert not budget.is_spent(2_000)
    assert budget.is_spent(2_001)
    none = Budget(None, None)
    assert none.warning(SLOT, 1 << 60) is None
    assert not none.is_spent(1 << 60)
    due = none.warning(replace(SLOT, wal_status="unreserved"), 5)
    assert "about to be invalidated" in (due or "")
