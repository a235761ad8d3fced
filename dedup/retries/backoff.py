"""Decide how long a failed record waits before its next attempt, and when to give it up."""

import math
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from typing import Protocol

from dedup.rules.identity import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed attempt, with all that the next wait depends on."""

    identity: Identity
    attempt: int
    """Number of the attempt that failed, from 1."""
    seconds: float = 0.0
    """Time since the record was first handled."""
    error: str = ""


class Patience(Protocol):
    """Decides how long a failed record waits: `Backoff`, or waits and stops of `tenacity`."""

    def after(self, failure: Failure) -> timedelta | None:
        """
        Return the wait before the next attempt; None: there is none, the record is a dead letter.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential waits with a ceiling; the jitter is derived from the record, not random."""

    base: timedelta = timedelta(seconds=1)
    """Wait after the first failure; each later wait is twice the one before."""

    ceiling: timedelta = timedelta(minutes=5)
    """Longest wait."""

    max_attempts: int = 10
    """Failures after which a record is a dead letter."""

    def after(self, failure: Failure) -> timedelta | None:
        """Return the wait before the next attempt; None: that was the last one."""
        if self.is_exhausted(failure.attempt):
            return None
        return self.wait(failure.identity, attempt=failure.attempt)

    def is_exhausted(self, attempt: int) -> bool:
        """Return whether `attempt` (from 1) was the last one that a failed record gets."""
        return attempt >= self.max_attempts

    def wait(self, identity: Identity, *, attempt: int) -> timedelta:
        """
        Return how long the record waits after it failed its `attempt` (from 1).

        The wait is between half of the full one and all of it, so that records that failed
        together do not come back together. Evaluating a batch twice gives the same waits.
        """
        # Past 2**63 every wait is the ceiling; larger powers overflow a float.
        full = math.ldexp(self.base.total_seconds(), min(attempt - 1, 63))
        return timedelta(
            seconds=min(full, self.ceiling.total_seconds()) * (1 + _fraction(identity)) / 2
        )


def _fraction(identity: Identity) -> float:
    """Return a number in [0, 1) that is as good as random, and always the same for `identity`."""
    digest = blake2b(f"{identity.round}/{identity.name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
