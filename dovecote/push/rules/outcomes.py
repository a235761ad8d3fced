"""The outcomes of a subscription's last requests, and since when they fail."""

from collections import Counter, deque
from dataclasses import dataclass

KEPT = 100
"""How many outcomes are remembered."""

SECONDS = 60.0
"""
For how long an outcome counts; failures in a row at the end count until a request succeeds.

Otherwise, an endpoint that was mended would fail for as long as it gets no more requests.
"""


@dataclass(frozen=True, slots=True)
class Recently:
    """The results of the last requests."""

    total: int = 0
    failed: int = 0
    why: str = ""
    """The most frequent failure, such as `401 Unauthorized`."""
    why_failed: int = 0
    """How many of the failures were that."""
    in_a_row: int = 0
    """How many of the newest failed one after the other."""
    since: float | None = None
    """When the first of those failed; on the caller's clock."""
    delivered: float | None = None
    """When a request succeeded last; on the caller's clock."""


class Outcomes:
    """Used on one loop; another thread may read."""

    def __init__(self) -> None:
        self._last: deque[tuple[float, str]] = deque(maxlen=KEPT)
        self._in_a_row = 0
        self._since: float | None = None
        self._delivered: float | None = None

    def add(self, now: float, why: str) -> None:
        """Add an outcome: why the request failed; empty: it succeeded."""
        self._last.append((now, why))
        if why:
            if not self._in_a_row:
                self._since = now
            self._in_a_row += 1
        else:
            self._in_a_row, self._since, self._delivered = 0, None, now

    def recently(self, now: float) -> Recently:
        """Return what still counts at `now`, on the clock that `add` has."""
        last, row = tuple(self._last), self._in_a_row
        found = Counter(
            why
            for place, (at, why) in enumerate(last)
            if now - at < SECONDS or place >= len(last) - row
        )
        total = found.total()
        del found[""]
        (why, most), *_ = [*found.most_common(1), ("", 0)]
        return Recently(
            total=total,
            failed=found.total(),
            why=why,
            why_failed=most,
            in_a_row=self._in_a_row,
            since=self._since,
            delivered=self._delivered,
        )
