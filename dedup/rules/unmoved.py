"""Notice offsets that do not move although their partitions have records."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

Partition: TypeAlias = tuple[str, int]

_MOST_SAID = 3

HELD_ADVICE = (
    "what is held back comes once its producer commits or aborts, at the latest after the "
    "producer's `transaction.timeout.ms`; `kafka-transactions.sh describe-producers` names it"
)
"""The advice about a partition that an open transaction holds back."""


@dataclass(slots=True)
class Unmoved:
    """Since when each partition's offset stands where it is."""

    after: float
    """For how many seconds an offset may stand still."""

    _since: dict[Partition, tuple[int, float]] = field(default_factory=dict)

    def seconds(
        self, partition: Partition, offset: int, end: int, now: float, *, due: float = 0.0
    ) -> float:
        """
        Return for how long the partition has not moved from `offset`; 0.0: it is at its end.

        `now` is on any clock that goes on. Until `due` the record waits for a time that was set
        for it, so this is not counted.
        """
        if offset >= end:
            self._since.pop(partition, None)
            return 0.0
        found = self._since.get(partition)
        if found is None or found[0] != offset:
            found = self._since[partition] = offset, now
        return max(0.0, now - max(found[1], due))

    def is_trouble(self, seconds: float) -> bool:
        """Return whether somebody should look at it."""
        return seconds > self.after

    def forget(self, but: Collection[Partition]) -> None:
        """Forget all partitions but these."""
        for gone in self._since.keys() - {*but}:
            del self._since[gone]


def standing(partition: Partition, offset: int, end: int, *, seconds: float, why: str) -> str:
    """Return in words that an offset does not move, and why."""
    topic, number = partition
    return (
        f"{topic}/{number} has stood at offset {offset} for {seconds:.0f} s, with {end - offset} "
        f"to its end: {why}"
    )


def held_back(partition: Partition, offset: int, end: int, *, seconds: float) -> str:
    """Return in words that a transaction is open at an offset, and holds back what follows."""
    topic, number = partition
    return (
        f"{topic}/{number} is held back at offset {offset}: a transaction of a producer has been "
        f"open there for {seconds:.0f} s, and the log goes on to {end}"
    )


def summed(found: Collection[str]) -> str:
    """Return several of these in one text of a bounded length."""
    first = [*found][:_MOST_SAID]
    more = f"; and {len(found) - len(first)} more partitions" if len(found) > len(first) else ""
    return "; ".join(first) + more
