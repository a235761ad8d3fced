"""The plan for records that fail: how often and how long they wait, and where they go."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from dedup.retries.backoff import Backoff, Patience
from dedup.rules.policies.blame import place
from dedup.rules.policies.departures import HandlerLeft
from dedup.rules.policies.results import Dead, Early, Retry, Skip, TakenOver, Unavailable, failure
from dedup.rules.policies.wording import MOST, plain, str_of
from dovecote.process.rarely import Rarely
from outbox.errors import DovecoteError

_log = logging.getLogger("dovecote.consumer.retries")
_MOST_REMEMBERED = 1_000


class Tracebacks:
    """Logs the traceback of each failure once: of its class, raised at its place."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._reported: set[tuple[type, str | None]] = set()

    def report(self, error: BaseException) -> None:
        """Log where an exception comes from, unless that was reported before."""
        failure = type(error), place(error)
        with self._lock:
            if failure in self._reported:
                return
            if len(self._reported) >= _MOST_REMEMBERED:
                self._reported.clear()
            self._reported.add(failure)
        # An exception of 20 MB would be a line of 20 MB.
        short = error if len(str_of(error)) <= MOST else Exception(plain(error))
        self._log.warning(
            "the handler raised; failures like it are reported once",
            exc_info=(type(error), short, error.__traceback__),
        )


_rarely = Rarely(_log)
_tracebacks = Tracebacks(_log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exceptions:
    """Results for exceptions: those in `dead`, in `wait`, in `skip`; any other is a retry."""

    dead: tuple[type[Exception], ...] = ()
    skip: tuple[type[Exception], ...] = ()

    wait: tuple[type[Exception], ...] = ()
    """As `Unavailable`: the record waits without having failed."""

    pause: timedelta = timedelta(seconds=1)
    """How long it waits."""

    def result(self, error: Exception) -> Retry | Dead | Skip:
        """Return the result for `error`."""
        told = failure(error)
        if isinstance(error, TakenOver):
            # Even if `dead` lists it: the record is another member's, and did not fail.
            _rarely.warning("records wait until it is clear which member has them: %s", told.error)
            return Early(told.error, self.pause)
        if isinstance(error, self.dead):
            return Dead(told.error)
        if isinstance(error, (Unavailable, *self.wait)):
            _rarely.warning("what the handler needs is away, and records wait: %s", told.error)
            return Early(told.error, self.pause)
        if isinstance(error, self.skip):
            return Skip(told.error)
        if not isinstance(error, DovecoteError):
            _tracebacks.report(error.error if isinstance(error, HandlerLeft) else error)
        return told


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry topic, for records that wait at least `wait`, and less than the next tier's."""

    topic: str
    wait: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan for records that fail."""

    patience: Patience = field(default_factory=Backoff)

    exceptions: Exceptions = field(default_factory=Exceptions)

    tiers: Sequence[Tier] = ()
    """Retry topics, the shortest wait first; none: the key is held."""

    dead_letters: str | None = None
    """
    Topic for records that are given up; None: none is, and a failing record holds its key until it
    succeeds.
    """

    hop_limit: int | None = None
    """A record that came round more often is a dead letter."""

    longest_hold: timedelta = timedelta(minutes=5)
    """Longest wait of a record that has no dead-letter topic to go to."""

    def tier(self, wait: timedelta) -> Tier:
        """Return the retry topic for this wait."""
        fitting = [tier for tier in self.tiers if tier.wait <= wait]
        return fitting[-1] if fitting else self.tiers[0]
