"""Compare trips and days with the departures and arrivals that they are made of."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovecote.demo.check.records import Record

_HOUR = 3_600_000
WITHIN = 24 * _HOUR
"""Longest time from a departure to the arrival of its flight."""
GAP = 8 * _HOUR
"""After this long on the ground, an aircraft's next day begins."""


class Move(NamedTuple):
    """A departure or an arrival."""

    flight: str
    tail: str | None
    at: int
    delay: int


class Results(NamedTuple):
    """The records in the output topics of pairing and sessions, and in their side topics."""

    trips: Sequence[Record]
    days: Sequence[Record]
    aside: Sequence[Record]
    """Late records and dead letters of both."""


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Differences between trips and days and the expected ones."""

    doubled: int
    """Departures and arrivals that came to pairing and sessions a second time."""

    trips: int
    days: int
    wrong: int
    notes: tuple[str, ...] = ()


def compare(
    departures: Iterable[Record], arrivals: Iterable[Record], results: Results
) -> Aggregated:
    """Compare `results` with the expected results of `departures` and `arrivals`."""
    left, came = list(departures), list(arrivals)
    ids = Counter(record.id for record in (*left, *came))
    wanted = {
        "trips": (trips(map(move, left), map(move, came)), results.trips),
        "days": (days(map(move, left)), results.days),
    }
    notes = [f"{record.place}: set aside" for record in results.aside]
    for name, (expected, records) in wanted.items():
        should, got = Counter(expected), Counter(_shown(record) for record in records)
        notes += [f"{name}: missing {each}" for each in (should - got).elements()]
        notes += [f"{name}: unexpected {each}" for each in (got - should).elements()]
    return Aggregated(
        doubled=ids.total() - len(ids),
        trips=len(results.trips),
        days=len(results.days),
        wrong=len(notes),
        notes=tuple(notes),
    )


def move(record: Record) -> Move:
    """Return the move in a record of departures or arrivals."""
    fields = record.fields
    return Move(fields["flight"], fields["tail"], fields["at"], fields["delay"])


def trips(departures: Iterable[Move], arrivals: Iterable[Move]) -> Iterator[str]:
    """Yield the trip of each flight: whole, or one for each half without the other."""
    came = {each.flight: each for each in arrivals}
    for left in departures:
        arrived = came.get(left.flight)
        if arrived is not None and abs(arrived.at - left.at) <= WITHIN:
            del came[left.flight]
            yield _trip(left, arrived)
        else:
            yield _trip(left, None)
    for arrived in came.values():
        yield _trip(None, arrived)


def _trip(left: Move | None, arrived: Move | None) -> str:
    halves = [half for half in (left, arrived) if half is not None]
    return _canonical(
        {
            "flight": halves[0].flight,
            "ts": min(half.at for half in halves),
            "departure": None if left is None else left.delay,
            "arrival": None if arrived is None else arrived.delay,
        }
    )


def days(departures: Iterable[Move]) -> Iterator[str]:
    """Yield the days of each aircraft: its departures that are no further apart than the gap."""
    by_tail: dict[str, list[int]] = {}
    for left in departures:
        if left.tail is not None:
            by_tail.setdefault(left.tail, []).append(left.at)
    for tail, times in by_tail.items():
        day: list[int] = []
        for at in sorted(times):
            if day and at - day[-1] > GAP:
                yield _day(tail, day)
                day = []
            day.append(at)
        yield _day(tail, day)


def _day(tail: str, times: Sequence[int]) -> str:
    return _canonical({"key": [tail], "start": times[0], "end": times[-1], "value": len(times)})


def _shown(record: Record) -> str:
    # The number of changes to a session before its result depends on the batches.
    fields = dict(record.fields)
    fields.pop("revision", None)
    if fields.get("kind") == "result":
        del fields["kind"]
    return _canonical(fields)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)
