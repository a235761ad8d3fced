"""Count what a `read_committed` consumer sees against what was committed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

_FAULTS = 20


class Seen(NamedTuple):
    """A record: its key, the number that its event has within the key, and its time."""

    key: str
    number: int
    at: int = 0
    """In milliseconds since 1970."""


class Fault(NamedTuple):
    """One thing that is wrong, and when about it went wrong."""

    what: str
    key: str
    number: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What must be seen, and what may be."""

    committed: Mapping[str, Sequence[range]]
    """The numbers of each key, ascending."""

    gone: Mapping[str, Sequence[range]] = field(default_factory=dict)
    """Numbers that a server which was put back to an earlier state has lost."""

    given_up: Collection[tuple[str, int]] = ()
    """What an operator wanted to be dropped, and what one accepted as a loss."""

    said_gone: int = 0
    """How many of these Kafka has, as an operator was told."""

    may_repeat: int = 0
    """How many records may be there again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What differs of how many `events`; all else is 0 if the relay kept its word."""

    events: int
    lost: int
    """Committed events that no record carries."""
    duplicated: int
    """Records beyond one per committed event, or of an event that was never committed."""
    out_of_order: int
    """Neighbours within a key of which the later has the lower number, repeated ones left out."""
    gone: int = 0
    """Events of which only Kafka knows: their rows went with the state that was taken back."""
    unsaid: int = 0
    """By how many that differs from what an operator was told."""
    repeated: int = 0
    """Records that are there again, as many as there may be."""
    faults: tuple[Fault, ...] = field(default=(), compare=False)
    """The first of them."""

    @property
    def is_well(self) -> bool:
        wrong = self.lost or self.duplicated or self.out_of_order or self.unsaid
        return self.events > 0 and not wrong


def judge(ledger: Ledger | Mapping[str, int], seen: Iterable[Seen]) -> Verdict:
    """
    Compare records, in the order of their partitions, with the numbers of the events of each key.

    Where nothing is wrong the records of a key are its numbers, ascending: 0, 1, 2, … where the
    ledger is nothing but how many each key has.
    """
    if not isinstance(ledger, Ledger):
        ledger = Ledger(committed={key: [range(count)] for key, count in ledger.items()})
    records: dict[str, list[Seen]] = {}
    for record in seen:
        records.setdefault(record.key, []).append(record)
    given_up: dict[str, set[int]] = {}
    for key, number in ledger.given_up:
        given_up.setdefault(key, set()).add(number)
    lost = surplus = repeated = out_of_order = gone = 0
    faults: list[Fault] = []
    for key in sorted({*ledger.committed, *records}):
        found = records.get(key, [])
        counts = Counter(record.number for record in found)
        wanted = {number for each in ledger.committed.get(key, ()) for number in each}
        missing = wanted - counts.keys() - given_up.get(key, set())
        taken_back = ledger.gone.get(key, ())
        unknown = {
            number
            for number in counts.keys() - wanted
            if not any(number in each for each in taken_back)
        }
        backwards = _backwards(found)
        again = [record for record in _again(found) if record.number not in unknown]
        lost += len(missing)
        gone += len(counts) - len(counts.keys() & wanted) - len(unknown)
        surplus += sum(counts[number] for number in unknown)
        repeated += len(again)
        out_of_order += len(backwards)
        faults += [Fault("lost", key, n, _time_of(n, found)) for n in sorted(missing)[:_FAULTS]]
        faults += [Fault("surplus", *each) for each in found if each.number in unknown]
        if len(again) > 0:
            faults += [Fault("repeated", *each) for each in again[:_FAULTS]]
        faults += [Fault("out of order", *each) for each in backwards[:_FAULTS]]
    allowed = min(repeated, ledger.may_repeat)
    events = sum(len(each) for ranges in ledger.committed.values() for each in ranges)
    first = tuple(sorted(faults, key=lambda fault: fault.at)[:_FAULTS])
    return Verdict(
        events,
        lost,
        surplus + repeated - allowed,
        out_of_order,
        gone=gone,
        unsaid=abs(gone - ledger.said_gone),
        repeated=allowed,
        faults=first,
    )


def _again(records: Sequence[Seen]) -> Iterator[Seen]:
    """Yield those whose number was there before."""
    known: set[int] = set()
    for record in records:
        if record.number in known:
            yield record
        known.add(record.number)


def _backwards(records: Sequence[Seen]) -> list[Seen]:
    """Return those whose number is lower than that of the one before, repeated ones left out."""
    by_number: dict[int, Seen] = {}
    for record in records:
        by_number.setdefault(record.number, record)
    firsts = list(by_number.values())
    return [after for before, after in pairwise(firsts) if after.number < before.number]


def _time_of(number: int, records: Sequence[Seen]) -> int:
    """Return when an event would have been seen: with the one that follows it in its key."""
    later = [record for record in records if record.number > number]
    nearest = min(later, key=lambda record: record.number, default=None)
    return nearest.at if nearest else max((record.at for record in records), default=0)
