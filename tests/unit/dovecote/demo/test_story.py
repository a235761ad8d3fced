from collections import Counter
from itertools import islice

import pytest

from dovecote.demo.departures import Impossible, Movement, Unconfirmed, judge
from dovecote.demo.flights import TOTAL, Flight, flights
from dovecote.demo.story import (
    ARRIVED,
    CANCELLED,
    DEPARTED,
    SCHEDULED,
    Step,
    results,
    steps,
    total,
    transactions,
)

SOME = list(flights(3_000))
WRITERS = 4
PLANS = [list(transactions(SOME, writer=n, writers=WRITERS)) for n in range(WRITERS)]


def test_the_flights_are_real_ones() -> None:
    first = next(flights(1))
    assert first.key == "UA1545-2013-01-01-EWR"
    assert first.scheduled.isoformat() == "2013-01-01T10:15:00+00:00"
    assert (first.tail, first.departure_delay, first.arrival_delay) == ("N14228", 2, 11)


def test_no_more_flights_are_read_than_asked_for() -> None:
    assert len(list(flights(7))) == 7
    assert len({flight.key for flight in SOME}) == 3_000


def test_there_are_as_many_flights_as_said() -> None:
    assert sum(1 for _ in flights(TOTAL + 1)) == TOTAL


def test_a_flight_is_planned_leaves_and_arrives() -> None:
    assert [step.type for step in steps(SOME[0])] == [SCHEDULED, DEPARTED, ARRIVED]
    assert [step.departure_delay for step in steps(SOME[0])] == [None, 2, 2]
    assert [step.arrival_delay for step in steps(SOME[0])] == [None, None, 11]


def test_a_cancelled_flight_never_leaves() -> None:
    cancelled = next(flight for flight in SOME if flight.departure_delay is None)
    assert [step.type for step in steps(cancelled)] == [SCHEDULED, CANCELLED]
    assert [step.departure_delay for step in steps(cancelled)] == [None, None]


def committed() -> Counter[str]:
    return Counter(
        step.id
        for plan in PLANS
        for transaction in plan
        if not transaction.is_rolled_back
        for step in transaction.steps
    )


def test_every_step_of_every_flight_is_committed() -> None:
    assert set(committed()) == {step.id for flight in SOME for step in steps(flight)}


def test_some_events_are_written_twice_with_the_same_id() -> None:
    repeated = [times for times in committed().values() if times > 1]
    assert set(repeated) == {2}
    assert 0.03 < len(repeated) / len(committed()) < 0.08


def test_a_flights_events_come_from_different_writers() -> None:
    writers: dict[Flight, set[int]] = {}
    for number, plan in enumerate(PLANS):
        for transaction in plan:
            for step in transaction.steps:
                writers.setdefault(step.flight, set()).add(number)
    assert all(len(found) >= min(len(steps(flight)), 2) for flight, found in writers.items())


def test_a_transaction_has_a_flight_once() -> None:
    for plan in PLANS:
        for transaction in plan:
            assert len({step.flight for step in transaction.steps}) == len(transaction.steps)


def test_what_is_rolled_back_is_done_again_at_once() -> None:
    for plan in PLANS:
        for before, after in zip(plan, islice(plan, 1, None), strict=False):
            if before.is_rolled_back:
                assert after == before._replace(is_rolled_back=False)
    assert any(transaction.is_rolled_back for transaction in PLANS[0])


def test_the_total_is_what_the_writers_do() -> None:
    told = total(SOME, writers=WRITERS)
    assert told.committed == committed().total()
    assert told.rolled_back > 0


@pytest.mark.parametrize("count", [500, 3_000])
def test_some_departures_are_put_off_and_some_refused(count: int) -> None:
    kinds = Counter(
        type(judge(step.type, value(step), at=0, attempt=1))
        for flight in SOME[:count]
        for step in steps(flight)
        if step.departure_delay is not None
    )
    assert kinds[Unconfirmed] > 0
    assert kinds[Impossible] > 0
    assert kinds[Movement] > kinds.total() * 0.9


def test_what_must_come_of_all_flights_is_known_beforehand() -> None:
    told = results(SOME)
    assert told.arrivals < told.departures < len(SOME)
    assert len(SOME) > told.trips >= told.departures
    assert told.departures > told.days > len({flight.tail for flight in SOME}) / 2


def value(step: Step) -> dict[str, object]:
    return {
        "flight": step.flight.key,
        "tail": step.flight.tail,
        "row": "0-1",
        "departure_delay": step.departure_delay,
        "arrival_delay": step.arrival_delay,
    }
