"""Count what a `read_committed` consumer sees against what was committed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Seen(NamedTuple):
    """A record: its key, and the number that its event has within the key."""

    key: str
    number: int


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

    @property
    def is_well(self) -> bool:
        return self.events > 0 and not (self.lost or self.duplicated or self.out_of_order)


def judge(committed: Mapping[str, int], seen: Iterable[Seen]) -> Verdict:
    """
    Compare records, in the order of their partitions, with the number of events of each key.

    Where nothing is wrong the records of a key are 0, 1, 2, …
    """
    records: dict[str, list[int]] = {}
    for key, number in seen:
        records.setdefault(key, []).append(number)
    lost = duplicated = out_of_order = 0
    for key in {*committed, *records}:
        numbers = records.get(key, [])
        wanted = committed.get(key, 0)
        counts = Counter(numbers)
        found = sum(1 for number in counts if 0 <= number < wanted)
        lost += wanted - found
        duplicated += len(numbers) - found
        firsts = list(dict.fromkeys(numbers))
        out_of_order += sum(1 for before, after in pairwise(firsts) if after < before)
    return Verdict(sum(committed.values()), lost, duplicated, out_of_order)
