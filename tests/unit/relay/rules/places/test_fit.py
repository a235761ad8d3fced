"""Progress is compared with the database's record of a name."""

from dataclasses import replace

import pytest

from relay.rules.places.fit import UNFINISHED, Held, cluster_refusal, misfit
from relay.rules.places.progress import Cursor, LogPosition, Origin, Place, at
from relay.rules.places.snapshot import Snapshot

HERE = Origin("7", 5, 6, 1, "0/FFFF", Snapshot(90, 100), "an-id")
HELD = Held(
    began=True,
    since="2026-11-26",
    cluster="cluster",
    term=3,
    nonce="newest",
    previous="one-before",
)
PLACES = [Cursor(HERE.snapshot), LogPosition(77)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nonce", ["newest", "one-before"])
def test_a_database_that_has_the_nonce_of_progress_fits(place: Place, nonce: str) -> None:
    assert misfit(replace(at("shop", HERE, place), nonce=nonce), HELD) is None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("held", [HELD, replace(HELD, nonce=None, previous=None), None])
def test_a_database_without_it_went_back_in_time(place: Place, held: Held | None) -> None:
    said = misfit(replace(at("shop", HERE, place), nonce="of-later"), held)
    assert said is not None
    assert "put back to an earlier state" in said
    assert "--accept-restored" in said


def test_where_nothing_is_published_nothing_can_be_missing() -> None:
    assert misfit(replace(at("shop", HERE, Cursor()), nonce="of-later"), None) is None


@pytest.mark.parametrize("place", [Cursor(), *PLACES])
def test_nobody_goes_on_from_an_unfinished_reconciliation(place: Place) -> None:
    said = misfit(replace(at("shop", HERE, place), nonce=f"{UNFINISHED}1"), HELD)
    assert said is not None
    assert "run it again" in said


def test_the_cluster_is_the_one_that_the_name_began_with() -> None:
    assert cluster_refusal(None, "shop", "any") is None
    assert cluster_refusal(replace(HELD, cluster=None), "shop", "any") is None
    assert cluster_refusal(HELD, "shop", "cluster") is None
    said = cluster_refusal(HELD, "shop", "mirror")
    assert said is not None
    assert "cluster mirror" in said
