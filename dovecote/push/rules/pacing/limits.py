"""Limit the requests to an endpoint, at a time and a second, to what it can take."""

from dataclasses import dataclass

_BURST_SECONDS = 0.1
_LONGEST_SECONDS = 3_600.0
"""A caller with longer to wait asks again by then."""


class Concurrency:
    """
    Finds how many concurrent requests an endpoint takes, up to the configured limit.

    It works like TCP: it begins with `first`, and doubles with each round. Each overload halves
    the number, and successes add one a round. After the endpoint was away it begins with one, and
    doubles with each round up to where it was.
    """

    def __init__(self, most: int, *, first: int | None = None, rest: float = 1.0) -> None:
        self._most, self._rest = most, rest
        self._knee = float(most)
        self._limit = float(most if first is None else min(first, most))
        self._halved = float("-inf")

    @property
    def limit(self) -> int:
        return int(self._limit)

    def succeeded(self, in_flight: int) -> None:
        """Take a success with so many in flight: if there was room for more, it proves nothing."""
        if self._limit >= self._most or 2 * in_flight < self._limit:
            return
        self._limit += 1.0 if self._limit < self._knee else 1.0 / self._limit
        self._limit = min(self._limit, float(self._most))

    def overloaded(self, now: float) -> None:
        """Take an overload of the endpoint; overloads within one round count as one."""
        if now - self._halved < self._rest:
            return
        self._halved = now
        self._knee = self._limit = max(1.0, self._limit / 2)

    def begin_anew(self) -> None:
        """Start over with one at a time: the endpoint was away."""
        self._knee, self._limit = max(self._limit, self._knee), 1.0


@dataclass(slots=True)
class Rate:
    """A number of requests a second; unused ones are saved for at most a tenth of a second."""

    per_second: float | None
    saves: bool = True
    """Whether unused requests are saved; otherwise two are never closer than the rate says."""
    _next: float = 0.0

    def begin(self, now: float) -> None:
        """Forget what is reserved and saved: the first request may be sent then."""
        self._next = now

    def reserve(self, now: float, *, most: float) -> float:
        """
        Reserve a request and return the seconds until then, if at most `most`.

        Otherwise nothing is reserved, and the result says when to ask again.
        """
        if self.per_second is None:
            return 0.0
        first = max(self._next, now - _BURST_SECONDS if self.saves else now)
        wait = max(0.0, first - now)
        if wait <= most:
            self._next = first + 1.0 / self.per_second
        return min(wait, _LONGEST_SECONDS)
