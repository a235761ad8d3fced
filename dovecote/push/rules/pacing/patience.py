"""Decide how long a record waits after a failed request, and how often it is sent."""

import math
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b

from dedup.retries.backoff import Failure

_SHORTEST = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullJitter:
    """
    Random waits between zero and a limit that doubles.

    The jitter is derived from the record and the attempt. So records that failed together do not
    come back together, and evaluating a record twice gives the same wait.
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
        share = _fraction(f"{failure.attempt}/{failure.identity.round}/{failure.identity.name}")
        return max(_SHORTEST, timedelta(seconds=min(full, self.ceiling.total_seconds()) * share))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedWait:
    """The same wait each time."""

    delay: timedelta
    resends: int = 0
    """Times that a record is sent again after the first time; 0: without end."""

    def after(self, failure: Failure) -> timedelta | None:
        """Return the wait before it is sent again; None: that was the last time."""
        if self.resends and failure.attempt > self.resends:
            return None
        return self.delay + _SHORTEST


def _fraction(text: str) -> float:
    """Return a number in [0, 1) that is as good as random, and always the same for `text`."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") / 2**64
