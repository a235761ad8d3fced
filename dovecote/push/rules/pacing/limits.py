"""How many requests an endpoint gets at a time and a second: as many as it can take."""

from dataclasses import dataclass

_BURST_SECONDS = 0.1
_LONGEST_SECONDS = 3_600.0
"""Who has longer to wait asks again by then."""


class Concurrency:
    """
    Finds how many requests at a time an endpoint takes, of those that it is allowed to get.

    As TCP does: each overload halves them, and successes add one a round. After the endpoint
    was away it begins with one, and doubles with each round up to where it was.
    """

    def __init__(self, most: int, *, rest: float = 1.0) -> None:
        self._most, self._rest = most, rest
        self._limit = self._knee = float(most)
        self._halved = float("-inf")

    @property
    def limit(self) -> int:
        return int(self._limit)

    def succeeded(self, in_flight: int) -> None:
        """Take a success while so many were in flight: who leaves room proves nothing."""
        if self._limit >= self._most or 2 * in_flight < self._limit:
            return
        self._limit += 1.0 if self._limit < self._knee else 1.0 / self._limit
        self._limit = min(self._limit, float(self._most))

    def overloaded(self, now: float) -> None:
        """Take that the endpoint had too much; those of one round count as one."""
        if now - self._halved < self._rest:
            return
        self._halved = now
        self._knee = self._limit = max(1.0, self._limit / 2)

    def begin_anew(self) -> None:
        """Go back to one at a time: the endpoint was away."""
        self._knee, self._limit = max(self._limit, self._knee), 1.0


@dataclass(slots=True)
class Rate:
    """So many a second; what was not used is not saved for longer than a tenth of one."""

    per_second: float | None
    _next: float = 0.0

    def reserve(self, now: float, *, most: float) -> float:
        """Return after how many seconds to go, if at most `most`: reserved; or to ask again."""
        if self.per_second is None:
            return 0.0
        first = max(self._next, now - _BURST_SECONDS)
        wait = max(0.0, first - now)
        if wait <= most:
            self._next = first + 1.0 / self.per_second
        return min(wait, _LONGEST_SECONDS)
