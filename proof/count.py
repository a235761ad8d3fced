"""Compare what a `read_committed` consumer sees with what was committed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

_FAULTS = 20


class Seen(NamedTuple):
    """A record: its key, its event's number within the key, and its time."""

    key: str
    number: int
    at: int = 0
    """In milliseconds since 1970."""


class Fault(NamedTuple):
    """One fault, and about when it happened."""

    what: str
    key: str
    number: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The events that must be seen, and those that may be."""

    committed: Mapping[str, Sequence[range]]
    """The committed numbers of each key, ascending."""

    gone: Mapping[str, Sequence[range]] = field(default_factory=dict)
    """Numbers that a server lost when it was restored to an earlier state."""

    given_up: Collection[tuple[str, int]] = ()
    """The events that an operator wanted to drop, and those that one accepted as lost."""

    said_gone: int = 0
    """How many of these Kafka has, according to the command's report to the operator."""

    may_repeat: int = 0
    """How many records may be repeated."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    The differences, for a number of `events`; everything else is 0 if the relay kept its word.
    """

    events: int
    lost: int
    """Committed events without a record."""
    duplicated: int
    """Records beyond one per committed event, or of an event that was never committed."""
    out_of_order: int
    """Neighbours within a key where the later has the lower number, without repeated ones."""
    gone: int = 0
    """Events that only Kafka has: their rows were lost when the server was restored."""
    unsaid: int = 0
    """The difference between `gone` and the report to the operator."""
    repeated: int = 0
    """Repeated records, as many as are allowed."""
    faults: tuple[Fault, ...] = field(default=(), compare=False)
    """The first faults."""

    @property
    def is_well(self) -> bool:
        wrong = self.lost or self.duplicated or self.out_of_order or self.unsaid
        return self.events > 0 and not wrong


def judge(ledger: Ledger | Mapping[str, int], seen: Iterable[Seen]) -> Verdict:
    """
    Compare records, in the order of their partitions, with the numbers of each key's events.

    If nothing is wrong, a key's records are its numbers, ascending. If the ledger only has each
    key's count, these are 0, 1, 2, …
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
    """Yield the records whose number came before."""
    known: set[int] = set()
    for record in records:
        if record.number in known:
            yield record
        known.add(record.number)


def _backwards(records: Sequence[Seen]) -> list[Seen]:
    """Return the records with a lower number than the one before, without repeated ones."""
    by_number: dict[int, Seen] = {}
    for record in records:
        by_number.setdefault(record.number, record)
    firsts = list(by_number.values())
    return [after for before, after in pairwise(firsts) if after.number < before.number]


def _time_of(number: int, records: Sequence[Seen]) -> int:
    """Return when an event would have been seen: together with the next one of its key."""
    later = [record for record in records if record.number > number]
    nearest = min(later, key=lambda record: record.number, default=None)
    return nearest.at if nearest else max((record.at for record in records), default=0)
