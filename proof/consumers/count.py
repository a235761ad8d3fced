"""Compare the effects and deliveries of consumers with the contents of the topics."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

EventName: TypeAlias = tuple[str, str, int]
"""Topic, key, and the event's number within the key."""


class Delivery(NamedTuple):
    """The first call of a member's handler with a record."""

    time: int
    member: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    The differences, for a number of `events`.

    If the consumers kept their word, `repeated` is at most `bound` and everything else is 0.
    """

    events: int
    lost: int
    """Events in a topic that had no effect."""
    surplus: int
    """Effects of events that were never committed to a topic."""
    out_of_order: int
    """Neighbours among a key's effects where the later has the lower number."""
    effects_twice: int
    """Effects beyond one for each event."""
    repeated: int
    """Deliveries beyond one for each record."""
    bound: int
    """
    The most that are allowed: the skew, for each time that a partition went to another member.
    """

    @property
    def is_well(self) -> bool:
        wrong = self.lost or self.surplus or self.out_of_order or self.effects_twice
        return self.events > 0 and not wrong and self.repeated <= self.bound


def judge(
    held: Iterable[EventName],
    written: Mapping[tuple[str, str], int],
    effects: Sequence[EventName],
    deliveries: Sequence[Delivery],
    *,
    skew: int,
) -> Verdict:
    """
    Compare effects, in their order, with the topics' final contents and with all that was written.
    """
    held = set(held)
    counts = Counter(effects)
    of_key: dict[tuple[str, str], list[int]] = {}
    for topic, key, number in effects:
        of_key.setdefault((topic, key), []).append(number)
    records = Counter((each.topic, each.partition, each.offset) for each in deliveries)
    return Verdict(
        events=len(counts),
        lost=len(held - counts.keys()),
        surplus=sum(not 0 <= n < written.get((t, k), 0) for t, k, n in counts),
        out_of_order=sum(
            after < before for numbers in of_key.values() for before, after in pairwise(numbers)
        ),
        effects_twice=counts.total() - len(counts),
        repeated=records.total() - len(records),
        bound=takeovers(deliveries) * skew,
    )


def takeovers(deliveries: Iterable[Delivery]) -> int:
    """Return how often a partition's records came to another member than the ones before."""
    last: dict[tuple[str, int], int] = {}
    changes = 0
    for each in sorted(deliveries):
        place = each.topic, each.partition
        changes += last.setdefault(place, each.member) != each.member
        last[place] = each.member
    return changes
