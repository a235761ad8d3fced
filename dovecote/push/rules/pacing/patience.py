"""How long a record waits that an endpoint did not take, and how often it is sent."""

import math
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b

from dedup.retries.backoff import Failure

_SHORTEST = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullJitter:
    """
    Waits of anything up to a bound that doubles.

    The jitter comes from the record and the attempt, not from a dice: what failed together does
    not come back together, and who evaluates it twice finds the same wait twice.
    """

    base: timedelta = timedelta(seconds=1)
    ceiling: timedelta = timedelta(minutes=5)
    max_attempts: int = 10

    def after(self, failure: Failure) -> timedelta | None:
        """Return the wait before the next attempt; None: that was the last one."""
        if failure.attempt >= self.max_attempts:
            return None
        # Past 2**63 every wait is the ceiling; larger powers overflow a float.
        full = math.ldexp(self.base.total_seconds(), min(failure.attempt - 1, 63))
        share = _fraction(f"{failure.attempt}/{failure.identity[1]}/{failure.identity[0]}")
        return max(_SHORTEST, timedelta(seconds=min(full, self.ceiling.total_seconds()) * share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The same wait each time."""

    delay: timedelta
    resends: int = 0
    """So often a record is sent again after the first time; 0: without end."""

    def after(self, failure: Failure) -> timedelta | None:
        """Return the wait before it is sent again; None: that was the last time."""
        if self.resends and failure.attempt > self.resends:
            return None
        return self.delay + _SHORTEST


def _fraction(text: str) -> float:
    """Return a number in [0, 1) that is as good as random, and always the same for `text`."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
