"""A consumer's health: it is ready if it completes records, or has none to complete."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from dedup.rules.condition import ConsumerSeen, Role, condition
from dedup.rules.recent import Recent
from dovecote.process.health import HealthReport
from dovecote.process.proof import Proof

# The client says this often whether the group has this member, if it is polled.
_OBSERVED_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The measures that the poll thread takes once a second."""

    lacking: str = ""
    """Topics that cannot be read."""
    held: str = ""
    """Partitions that do not go on, because of a record or of a transaction."""
    barred: str = ""
    """Why records are not begun."""
    assigned: int = 1
    waits: bool = False
    """Whether all records in memory wait for a time that was set for them."""
    in_memory: int = 0
    oldest: float = 0.0
    """For how long the longest running handler has been at work."""
    lag_rows: int = 0
    lag_seconds: float = 0.0


@dataclass(slots=True)
class Health:
    """
    Facts that the poll thread states and the HTTP server reads.

    Ready: the group has this member (or had it within `stall_after` seconds, because members are
    shared out anew from time to time), a broker answers, and within `stall_after` seconds a record
    was completed, or none in memory was due. A process that polls but completes nothing is not
    ready, nor is one that does not poll.
    """

    stall_after: float = 60.0

    behind_after: float = 300.0
    """How old a record in memory may be, in seconds."""

    lacking: str = ""
    """
    The topics and partitions that it cannot read; it is ready all the same, because it reads the
    rest.
    """

    unmoved: str = ""
    """
    The partitions whose offsets have not moved for `stall_after` although they have records; it is
    ready all the same, because a restart would not move them.
    """

    expired: int = 0
    """Offsets that the topics had deleted before they were read."""

    levels: Levels = Levels()
    """The last measures of the poll thread."""

    recent: Recent = field(default_factory=Recent, repr=False)
    """The outcomes of the last minute's records."""

    shared: Proof | None = field(default=None, repr=False)
    """Whether all partitions of the group have a member; asked while this one has none."""

    inbox: Proof | None = field(default=None, repr=False)
    """Whether the inbox answers."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _failure: str = ""
    _said: str = ""
    _joined: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _worked: float | None = None
    _answered: float | None = None
    _progressed: float = field(default_factory=time.monotonic)
    _polled: float = field(default_factory=time.monotonic)

    def joined(self) -> None:
        """Record that the group has this member."""
        with self._lock:
            self._role, self._said, self._joined = "consuming", "", time.monotonic()
            if self._answered is None:
                self._answered = self._joined

    def said(self, error: str) -> None:
        """Record what Kafka said last; it is the reason for as long as there is no member."""
        with self._lock:
            self._said = error

    def answered(self, seconds: float) -> None:
        """Record that Kafka has answered this many seconds ago."""
        self._answered = time.monotonic() - seconds

    def polled(self, *, progressed: bool, worked: bool = False) -> None:
        """
        Record that polling goes on, and that records were completed, or that none is due.

        `worked`: records were completed.
        """
        # No lock: only the poll thread writes this, and it comes here with each batch.
        self._polled = time.monotonic()
        if progressed:
            self._progressed = self._polled
        if worked:
            self._worked = self._polled

    def failing(self, reason: str) -> None:
        """Record the current problem; empty: there is none."""
        with self._lock:
            self._failure = reason

    def worked(self) -> float | None:
        """Return how many seconds ago a record was completed, None if none was yet."""
        return None if self._worked is None else time.monotonic() - self._worked

    @contextmanager
    def proving(self) -> Iterator[None]:
        """Ask what is to be asked now and then until the end of the block."""
        with ExitStack() as stack:
            for each in (self.shared, self.inbox):
                if each is not None:
                    stack.enter_context(each.at_work())
            yield

    @property
    def was_member(self) -> bool:
        """Whether the group has ever had this member."""
        return self._joined > 0

    def starting(self) -> None:
        """Record that it tries anew to become a member."""
        with self._lock:
            self._role, self._began = "starting", time.monotonic()

    def stopped(self) -> None:
        with self._lock:
            self._role = "stopped"

    def ready(self) -> HealthReport:
        """Return whether records are completed (or would be, if there were any)."""
        seen = self._seen()
        state, reason = condition(seen)
        ok = (
            seen.role == "consuming"
            and not seen.failure
            and seen.away <= seen.away_after
            and max(seen.polled, seen.progressed) <= seen.stall_after
        )
        if ok and self.expired:
            gone = f"{self.expired} offsets were deleted before they were read"
            reason = f"{reason}; {gone}" if ", but " in reason else f"{reason}, but {gone}"
        return HealthReport(ok=ok, role=seen.role, reason=reason, state=state)

    def _seen(self) -> ConsumerSeen:
        levels, (handled, failed) = self.levels, self.recent.counts(time.monotonic())
        inbox = "" if self.inbox is None else self.inbox.seen().trouble
        shared: str | None = ""
        if self.shared is not None:
            found = self.shared.seen()
            shared = None if found.seconds is None and not found.trouble else found.trouble
        with self._lock:
            now = time.monotonic()
            silent = now - self._polled
            return ConsumerSeen(
                role=self._role,
                stall_after=self.stall_after,
                failure=self._failure,
                away=now - max(self._joined, self._began if self._role == "starting" else 0.0),
                away_after=max(self.stall_after, silent + _OBSERVED_SECONDS),
                said=self._said,
                polled=silent,
                progressed=now - self._progressed,
                worked=None if self._worked is None else now - self._worked,
                handler=levels.oldest,
                lacking=levels.lacking if levels.held else self.lacking,
                held=levels.held,
                barred=levels.barred,
                unmoved=self.unmoved,
                inbox=inbox,
                assigned=levels.assigned,
                shared=shared,
                answered=None if self._answered is None else now - self._answered,
                handled=handled,
                failed=failed,
                waits=levels.waits,
                in_memory=levels.in_memory,
                lag_rows=levels.lag_rows,
                lag_seconds=levels.lag_seconds,
                behind_after=self.behind_after,
            )
