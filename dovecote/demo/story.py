"""The plan of the service's writers: what they do with the flights, the same in every run."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5
from zlib import crc32

from dovecote.demo.check.aggregated import Move, days, trips
from dovecote.demo.departures import Movement, judge
from dovecote.demo.flights import Flight

SCHEDULED, DEPARTED, CANCELLED, ARRIVED = (
    "FlightScheduled",
    "FlightDeparted",
    "FlightCancelled",
    "FlightArrived",
)

# Flights that are under way at the same time: their events lie close together, and the events of
# one flight reach different writers within moments.
_UNDER_WAY = 60
_SIZES = (1, 4, 2, 12, 3, 20)
_REPEATED_ONE_IN = 20
_ROLLED_BACK_ONE_IN = 15
_SCHEDULED_AHEAD = timedelta(days=1)


class Step(NamedTuple):
    """An event in the life of a flight."""

    flight: Flight
    type: str
    stage: int
    """0: planned; 1: it left, or never will; 2: it arrived."""

    time: datetime
    """When it happened, in 2013."""

    @property
    def id(self) -> str:
        """The event's id, which is part of the request: a repeated request has the same one."""
        return str(uuid5(NAMESPACE_URL, f"{self.flight.key}/{self.type}"))

    @property
    def departure_delay(self) -> int | None:
        """The departure delay, as far as it is known at that moment."""
        return self.flight.departure_delay if self.stage else None

    @property
    def arrival_delay(self) -> int | None:
        """The arrival delay, as far as it is known at that moment."""
        return self.flight.arrival_delay if self.type == ARRIVED else None


class Transaction(NamedTuple):
    """Steps of different flights that one writer writes in one transaction."""

    steps: tuple[Step, ...]
    is_rolled_back: bool


class Total(NamedTuple):
    """The totals of all writers together."""

    committed: int
    """Events in committed transactions."""

    rolled_back: int
    """Events in transactions that are rolled back."""


def steps(flight: Flight) -> list[Step]:
    """Return the steps of `flight`, in order, as far as the data has them."""
    told = [Step(flight, SCHEDULED, 0, flight.scheduled - _SCHEDULED_AHEAD)]
    if flight.departure_delay is None:
        return [*told, Step(flight, CANCELLED, 1, flight.scheduled)]
    left = flight.scheduled + timedelta(minutes=flight.departure_delay)
    told.append(Step(flight, DEPARTED, 1, left))
    if flight.arrival_delay is not None and flight.airborne is not None:
        told.append(Step(flight, ARRIVED, 2, left + timedelta(minutes=flight.airborne)))
    return told


def transactions(flights: Iterable[Flight], *, writer: int, writers: int) -> Iterator[Transaction]:
    """
    Yield the transactions of `writer` (from 0) of `writers`, in order.

    Now and then a transaction is rolled back; the writer then repeats all of it.
    """
    sizes = cycle(_SIZES)
    size, taken = next(sizes), dict[str, Step]()
    number = 0
    for step in _steps_of(flights, writer, writers):
        # One transaction locks each of its flights once.
        if len(taken) == size or step.flight.key in taken:
            yield from _attempts(taken, number)
            size, taken, number = next(sizes), {}, number + 1
        taken[step.flight.key] = step
    if taken:
        yield from _attempts(taken, number)


def total(flights: Iterable[Flight], *, writers: int) -> Total:
    """Return the totals of all `writers`."""
    known = list(flights)
    counts = {True: 0, False: 0}
    for writer in range(writers):
        for transaction in transactions(known, writer=writer, writers=writers):
            counts[transaction.is_rolled_back] += len(transaction.steps)
    return Total(committed=counts[False], rolled_back=counts[True])


class ExpectedResults(NamedTuple):
    """The expected results of all flights, whatever happens on the way."""

    departures: int
    arrivals: int
    trips: int
    days: int


def results(flights: Iterable[Flight]) -> ExpectedResults:
    """Return the expected numbers of records, for which the demo waits."""
    left: list[Move] = []
    came: list[Move] = []
    for flight in flights:
        for step in steps(flight):
            if step.departure_delay is None:
                continue
            value = {
                "flight": flight.key,
                "tail": flight.tail,
                "row": "",
                "departure_delay": step.departure_delay,
                "arrival_delay": step.arrival_delay,
            }
            at = int(step.time.timestamp() * 1000)
            found = judge(step.type, value, at=at, attempt=2)
            if isinstance(found, Movement):
                moved = Move(flight.key, flight.tail, at, found.value["delay"])
                (came if step.type == ARRIVED else left).append(moved)
    return ExpectedResults(len(left), len(came), _count(trips(left, came)), _count(days(left)))


def _count(found: Iterable[object]) -> int:
    return sum(1 for _ in found)


def _attempts(taken: dict[str, Step], number: int) -> Iterator[Transaction]:
    steps = tuple(taken.values())
    if number % _ROLLED_BACK_ONE_IN == 1:
        yield Transaction(steps, is_rolled_back=True)
    yield Transaction(steps, is_rolled_back=False)


def _steps_of(flights: Iterable[Flight], writer: int, writers: int) -> Iterator[Step]:
    """Yield the steps of `writer`: every step of a flight goes to a different writer."""
    rest = iter(flights)
    while under_way := [steps(flight) for flight in islice(rest, _UNDER_WAY)]:
        for stage in range(3):
            for place, told in enumerate(under_way):
                if stage >= len(told):
                    continue
                owner = (place + stage) % writers
                if owner == writer:
                    yield told[stage]
                if is_repeated(told[stage]) and (owner + 1) % writers == writer:
                    yield told[stage]


def is_repeated(step: Step) -> bool:
    """
    Return whether the request is repeated, as after a timeout; another writer gets the second.
    """
    return crc32(f"{step.flight.key}/{step.type}".encode()) % _REPEATED_ONE_IN == 0
