"""How long records wait until they are due, also if somebody sets the clock meanwhile."""

import time
from collections.abc import Callable, Collection

from dedup.retries.aside import Partition
from dedup.retries.held_states import Place

# The clocks of brokers and their clients differ by less, unless one of them is wrong.
_APART_MILLISECONDS = 60_000


def wait(due: int, now: int, written: int | None = None) -> int:
    """
    Return for how many milliseconds a record waits that is due at `due`; below 1: it is due.

    If a copy was `written` long after `now`, both times are from another clock than ours: it waits
    for as long as that clock had set.
    """
    ahead = 0 if written is None else written - now
    return due - now - (ahead if ahead > _APART_MILLISECONDS else 0)


class DueTimes:
    """
    When the waits of records end that are not due; any thread may call it.

    A wait ends when its time comes on the wall clock, or has passed on the clock that nobody sets.
    Otherwise a clock that is set back by hours would make keys wait for hours.
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed = elapsed
        self._ends: dict[Place, tuple[int, float]] = {}
        """By place: the time when it is due, and the end of its wait."""

    def begin(self, place: Place, due: int, milliseconds: int) -> None:
        """Let a record wait from now on."""
        self._ends[place] = due, self._elapsed() + milliseconds / 1000

    def left(self, place: Place, due: int, milliseconds: int) -> int:
        """Return what is left of the wait, which by the wall clock is `milliseconds`."""
        if milliseconds <= 0:
            return 0
        begun = self._ends.get(place)
        if begun is None or begun[0] != due:
            self.begin(place, due, milliseconds)
            return milliseconds
        return min(milliseconds, round((begun[1] - self._elapsed()) * 1000))

    def end(self, place: Place) -> None:
        """Forget a record that is completed."""
        self._ends.pop(place, None)

    def forget(self, gone: Collection[Partition]) -> None:
        """Forget the records of partitions."""
        for place in [place for place in self._ends.copy() if place[:2] in gone]:
            self.end(place)
