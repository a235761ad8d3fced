"""Snapshots as values: the text is Postgres's own, and visibility is set arithmetic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.places.snapshot import BEGINNING, Snapshot


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    xmax = draw(st.integers(1, 60))
    running = draw(st.sets(st.integers(1, 60))) & set(range(1, xmax))
    return Snapshot(min(running, default=xmax), xmax, tuple(sorted(running)))


@given(snapshots())
def test_the_text_is_read_back(snapshot: Snapshot) -> None:
    assert Snapshot.parse(str(snapshot)) == snapshot


@pytest.mark.parametrize("text", ["10:20:10,14,15", "10:10:", "1:1:", "5:9000000000:7,8"])
def test_postgres_own_text_is_understood(text: str) -> None:
    assert str(Snapshot.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "10", "10:20", "20:10:", "0:5:", "10:20:9", "10:20:20", "a:b:", "10:20:x", "1:2:3:4"],
)
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Snapshot.parse(text)


@given(snapshots(), st.integers(1, 70))
def test_it_sees_what_is_over(snapshot: Snapshot, xid: int) -> None:
    assert snapshot.sees(xid) == (xid < snapshot.xmax and xid not in snapshot.xip)


@given(snapshots(), st.integers(1, 70), st.integers(1, 70))
def test_before_a_border_it_says_the_same_and_behind_it_nothing(
    snapshot: Snapshot, border: int, xid: int
) -> None:
    short = snapshot.before(border)
    assert Snapshot.parse(str(short)) == short
    assert short.sees(xid) == (snapshot.sees(xid) and xid < border)


@given(st.integers(1, 70))
def test_the_beginning_sees_nothing(xid: int) -> None:
    assert not BEGINNING.sees(xid)


def test_thousands_of_running_transactions_survive_the_text() -> None:
    crowd = tuple(range(1_000, 6_000))
    assert Snapshot.parse(str(Snapshot(1_000, 7_000, crowd))).xip == crowd


@given(snapshots(), snapshots(), st.integers(1, 70))
def test_a_union_sees_what_either_sees(one: Snapshot, other: Snapshot, xid: int) -> None:
    both = one.union(other)
    assert both.sees(xid) == (one.sees(xid) or other.sees(xid))
    assert Snapshot.parse(str(both)) == both
    assert both.covers(one)
    assert both.covers(other)


@given(snapshots(), snapshots())
def test_covering_is_seeing_everything_that_the_other_sees(one: Snapshot, other: Snapshot) -> None:
    sees_all = all(one.sees(xid) for xid in range(1, 100) if other.sees(xid))
    if one.covers(other):
        assert sees_all
    elif other.xmax <= one.xmax:
        assert not sees_all


@given(snapshots(), st.sets(st.integers(1, 99)), st.integers(1, 120))
def test_transactions_can_be_added_one_by_one(one: Snapshot, more: set[int], xid: int) -> None:
    found = one.adding(more)
    assert found.sees(xid) == (one.sees(xid) or xid in more)
    assert Snapshot.parse(str(found)) == found


@given(st.integers(1, 1 << 40), st.integers(-(1 << 31), (1 << 31) - 1))
def test_the_low_half_of_an_id_tells_the_whole_one(xmax: int, away: int) -> None:
    whole = max(xmax + away, 1)
    assert Snapshot(xmax, xmax).whole(whole & 0xFFFFFFFF) == whole
