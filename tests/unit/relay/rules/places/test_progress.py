"""Progress is read back as it was written, and believed only where it was made."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.places.progress import Cursor, LogPosition, Origin, Place, Progress, at, refusal
from relay.rules.places.snapshot import Snapshot

HERE = Origin("7000000000000000001", 16384, 16385, 1, "0/1A2B3C", Snapshot(90, 100, (90, 95)))

snapshots = st.integers(1, 10**12).flatmap(
    lambda xmax: st.sets(st.integers(max(1, xmax - 50), xmax), max_size=5).map(
        lambda xip: Snapshot(min(xip - {xmax}, default=xmax), xmax, tuple(sorted(xip - {xmax})))
    )
)
lsns = st.integers(0, 2**64 - 1)
cursors = st.builds(Cursor, snapshots, st.none() | snapshots, st.integers(0, 2**62), lsns)
log_positions = st.builds(LogPosition, lsns, st.integers(0, 2**62), st.none() | snapshots, lsns)


@given(cursors | log_positions, st.text(min_size=1))
def test_what_was_encoded_decodes_to_the_same(cursor: Place, name: str) -> None:
    progress = at(name, HERE, cursor)
    assert Progress.decode(progress.encode()) == progress


@given(st.binary() | st.text().map(str.encode))
def test_anything_else_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"progress record"):
        Progress.decode(value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"format":1', '"format":2'),
        ('"since":"90:100:90,95"', '"since":"100:90:"'),
        ('"since":"90:100:90,95"', '"since":7'),
        ('"position":5', '"position":"five"'),
        ('"name":"shop"', '"nom":"shop"'),
        ('"cursor":{', '"cursor":[],"was":{'),
        ('"lsn"', '"extra":1,"lsn"'),
    ],
)
def test_a_damaged_record_is_a_value_error(old: str, new: str) -> None:
    value = at("shop", HERE, Cursor(HERE.snapshot, None, 5)).encode().decode()
    assert old in value
    with pytest.raises(ValueError, match=r".+"):
        Progress.decode(value.replace(old, new).encode())


@pytest.mark.parametrize("cursor", [Cursor(), Cursor(HERE.snapshot), Cursor(until=HERE.snapshot)])
def test_progress_made_here_is_believed(cursor: Cursor) -> None:
    assert refusal(at("shop", HERE, cursor), HERE) is None


@pytest.mark.parametrize(
    ("elsewhere", "says"),
    [
        (replace(HERE, system_identifier="9"), "made by another database server"),
        (replace(HERE, database=2), "another database or schema"),
        (replace(HERE, schema=3), "another database or schema"),
        (replace(HERE, snapshot=Snapshot(99, 99)), "lies ahead of this server"),
        (replace(HERE, snapshot=Snapshot(5, 5)), "lies ahead of this server"),
    ],
)
@pytest.mark.parametrize(
    "cursor", [Cursor(HERE.snapshot), Cursor(Snapshot(1, 2), HERE.snapshot, 7)]
)
def test_progress_made_elsewhere_is_refused_with_a_way_out(
    elsewhere: Origin, says: str, cursor: Cursor
) -> None:
    reason = refusal(at("shop", HERE, cursor), elsewhere)
    assert reason is not None
    assert says in reason
    assert "'shop'" in reason
    assert "`name` of its own" in reason or "--accept-restored" in reason


def test_a_place_in_the_log_must_be_one_that_the_server_has() -> None:
    assert refusal(at("shop", HERE, LogPosition(0x1A2B3C, 5)), HERE) is None
    reason = refusal(at("shop", HERE, LogPosition(0x1A2B3D)), HERE)
    assert reason is not None
    assert "lies ahead of this server (position 0/1A2B3D, the server is at 0/1A2B3C)" in reason


PROMOTED = replace(HERE, timeline=2, lsn="0/2000000")
"""The server that took the place of `HERE`; progress made there reaches to 0/1A2B3C."""

PLACES: list[Place] = [
    Cursor(HERE.snapshot),
    LogPosition(0x1A2B3C),
    LogPosition(7, 0, HERE.snapshot, 0x1A2B3C),
]


@pytest.mark.parametrize("place", PLACES)
def test_a_promotion_is_gone_through_only_if_it_kept_what_is_published(place: Place) -> None:
    progress = at("shop", HERE, place)
    assert refusal(progress, PROMOTED, 0x1A2B3C) is None
    lost = refusal(progress, PROMOTED, 0x1A2B3B)
    assert lost is not None
    assert "commits were lost: the progress of outbox 'shop' is of timeline 1" in lost
    assert "reaches to 0/1A2B3C" in lost
    assert "promoted or restored to timeline 2 with no more of it than 0/1A2B3B" in lost
    never = refusal(progress, PROMOTED, 0)
    assert never is not None
    assert "no more of it than 0/0" in never


@pytest.mark.parametrize("place", PLACES)
def test_what_cannot_be_learnt_is_not_believed(place: Place) -> None:
    reason = refusal(at("shop", HERE, place), PROMOTED, None)
    assert reason is not None
    assert "give the relay's role REPLICATION until it has started once" in reason


@pytest.mark.parametrize("place", PLACES)
def test_the_way_out_tells_what_is_lost_first(place: Place) -> None:
    said = refusal(at("shop", HERE, place), PROMOTED, 0) or ""
    assert said.endswith(
        "`dovecote relay reconcile` reports what is missing where, and goes on with "
        "`--accept-restored`"
    )


def test_who_has_published_nothing_has_lost_nothing() -> None:
    assert refusal(at("shop", HERE, Cursor()), PROMOTED, 0) is None
    assert refusal(at("shop", HERE, Cursor()), PROMOTED, None) is None


@pytest.mark.parametrize("place", [Cursor(), *PLACES])
def test_an_old_primary_is_refused(place: Place) -> None:
    reason = refusal(at("shop", PROMOTED, place), HERE)
    assert reason is not None
    assert "is of timeline 2, this server is on timeline 1: another server was promoted" in reason


def test_the_record_names_its_capture() -> None:
    assert at("shop", HERE, Cursor()).capture == "table"
    assert at("shop", HERE, LogPosition(1)).capture == "wal"
