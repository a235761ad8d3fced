from dataclasses import replace

import pytest

from dovecote.demo.check.aggregated import (
    GAP,
    WITHIN,
    Aggregated,
    Move,
    Results,
    compare,
    days,
    trips,
)
from tests.unit.dovecote.demo.world import DAYS, RESULTS, TOPICS, TRIPS, said


def found(results: Results) -> Aggregated:
    return replace(compare(TOPICS.departures, TOPICS.arrivals, results), notes=())


def test_trips_and_days_of_all_that_moved_are_well() -> None:
    assert found(RESULTS) == Aggregated(doubled=0, trips=2, days=1, wrong=0)


@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        pytest.param(RESULTS._replace(trips=TRIPS[:1]), 1, id="a trip is missing"),
        pytest.param(RESULTS._replace(trips=[*TRIPS, TRIPS[0]]), 1, id="a trip is there twice"),
        pytest.param(
            RESULTS._replace(
                trips=[TRIPS[0], said("trips", flight="LATE", ts=1, departure=200, arrival=None)]
            ),
            2,
            id="a trip is half",
        ),
        pytest.param(RESULTS._replace(days=[]), 1, id="a day is missing"),
        pytest.param(RESULTS._replace(days=[*DAYS, *DAYS]), 1, id="a day is there twice"),
        pytest.param(RESULTS._replace(aside=[TRIPS[0]]), 1, id="something was set aside"),
    ],
)
def test_a_fault_in_trips_or_days_is_wrong(results: Results, wrong: int) -> None:
    assert found(results).wrong == wrong


def test_a_duplicate_that_reaches_them_is_counted() -> None:
    departures = [*TOPICS.departures, TOPICS.departures[0]]
    assert compare(departures, TOPICS.arrivals, RESULTS).doubled == 1


def test_a_flight_without_its_other_half_is_a_trip_of_one() -> None:
    left, came = Move("F", "N1", 0, 5), Move("F", "N1", WITHIN, 7)
    assert len(list(trips([left], [came]))) == 1
    assert len(list(trips([left], [came._replace(at=WITHIN + 1)]))) == 2
    assert len(list(trips([], [came]))) == 1


def test_a_day_ends_where_the_aircraft_stays_on_the_ground() -> None:
    first = Move("F", "N1", 0, 5)
    assert len(list(days([first, first._replace(at=GAP)]))) == 1
    assert len(list(days([first._replace(at=GAP + 1), first]))) == 2
    assert len(list(days([first, first._replace(tail="N2")]))) == 2
    assert list(days([first._replace(tail=None)])) == []
