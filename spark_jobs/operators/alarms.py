"""
Find the keys that are due at a moment: a heap whose entries may be early, but never late.

Most records move the deadline of their key into the future. The heap notices only when the old
deadline comes up, so a record costs nothing here.
"""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any, TypeAlias

from spark_jobs.operators.step import NEVER

Ident: TypeAlias = Any
"""A key, or an input partition with a key; the same for all entries of one heap."""


class Alarms:
    """Moments, and the keys to look at then; each key has one valid moment."""

    __slots__ = ("_bounds", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, Ident]] = []
        self._bounds: dict[Hashable, int] = {}

    def set(self, ident: Ident, moment: int) -> None:
        """Look at `ident` by `moment`, or earlier if that was set before."""
        if moment < self._bounds.get(ident, NEVER):
            self._bounds[ident] = moment
            heappush(self._heap, (moment, ident))

    def due(self, moment: int) -> Iterator[tuple[int, Ident]]:
        """
        Yield the entries that are due by `moment`, earliest first, and remove their alarms.

        Alarms that are set meanwhile come up as well.
        """
        heap, bounds = self._heap, self._bounds
        while heap and heap[0][0] <= moment:
            bound, ident = heappop(heap)
            if bounds.get(ident) == bound:
                del bounds[ident]
                yield bound, ident

    def first(self) -> int | None:
        """Return the earliest moment, or None if there is none."""
        return self._heap[0][0] if self._heap else None
