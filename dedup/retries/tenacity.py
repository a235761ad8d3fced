"""Let `tenacity`'s wait and stop objects decide when a failed record is tried again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dedup.retries.backoff import Failure
from outbox.errors import DovecoteError

# By default the ceiling of tenacity's exponential waits is longer than a `timedelta` can be.
_MOST_SECONDS = timedelta.max.days * 86_400.0


class AttemptFailed(DovecoteError):
    """The exception that waits and stops see: the error, as its text."""


@dataclass(frozen=True, slots=True)
class Tenacity:
    """
    Waits and stops of `tenacity`, such as `wait_exponential(max=60)` and `stop_after_delay(3600)`.

    They know only the attempt, the error and the time since the first attempt: nothing sleeps
    meanwhile, and another process may have made the earlier attempts. A wait with randomness in it
    has another length in each process.
    """

    wait: Callable[[Any], float]
    stop: Callable[[Any], bool]

    def after(self, failure: Failure) -> timedelta | None:
        """Return the wait before the next attempt; None: `stop` says that was the last one."""
        state = _State(failure)
        # Compute the wait first, because `stop_before_delay` looks at it.
        state.upcoming_sleep = seconds = min(max(0.0, float(self.wait(state))), _MOST_SECONDS)
        return None if self.stop(state) else timedelta(seconds=seconds)


class _State:
    """A `tenacity.RetryCallState`, as far as its waits and stops read it."""

    def __init__(self, failure: Failure) -> None:
        self.attempt_number = failure.attempt
        self.seconds_since_start = failure.seconds
        self.start_time, self.outcome_timestamp = 0.0, failure.seconds
        self.idle_for = self.upcoming_sleep = 0.0
        self.outcome = _Outcome(failure)


class _Outcome:
    failed = True

    def __init__(self, failure: Failure) -> None:
        self.attempt_number = failure.attempt
        self._error = AttemptFailed(failure.error)

    def exception(self) -> AttemptFailed:
        return self._error
