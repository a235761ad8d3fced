"""
Decide how the records of a key meet: in the partition where they lie, or by a shuffle.

With Kafka's own partitioner, all records of a key lie in one partition, and a task that reads
whole partitions has all of them. A topic does not say which partitioner its producers have, so
their records are watched: a job begins with a shuffle, which is right for any partitioner, and
goes over when no record lay elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.query.settings import Grouping

PARTITIONS, SHUFFLE = "partitions", "shuffle"

_EVIDENCE = 1_000
# After a record that lay elsewhere, more of them are likely, and each goes a long way round.
_MORE_EVIDENCE = 1_000_000


@dataclass(slots=True)
class Choice:
    """Chooses the way of each batch of one query."""

    setting: Grouping
    lanes: int
    way: str = SHUFFLE
    _needed: int = _EVIDENCE
    _seen: int = 0

    def choose(self, partitions: Mapping[str, int]) -> str:
        """Return the way of a batch that reads topics with so many partitions each."""
        divides = all(count % self.lanes == 0 for count in partitions.values())
        if self.setting == SHUFFLE or not divides:
            self.way = SHUFFLE
        elif self.setting == PARTITIONS or self._seen >= self._needed:
            self.way = PARTITIONS
        else:
            self.way = SHUFFLE
        return self.way

    def took(self, rows: int, misplaced: int) -> None:
        """Note how many records a batch had, and how many lay where their key does not belong."""
        if misplaced:
            self._seen, self._needed = 0, _MORE_EVIDENCE
        else:
            self._seen += rows
