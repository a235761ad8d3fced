"""A consumer's health: it is ready if it completes records, or has none to complete."""

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

from dovecote.process.health import HealthReport

# The client says this often whether the group has this member, if it is polled.
_OBSERVED_SECONDS = 10.0

Role = Literal["starting", "consuming", "stopped"]


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

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _failure: str = ""
    _said: str = ""
    _joined: float = 0.0
    _progressed: float = field(default_factory=time.monotonic)
    _polled: float = field(default_factory=time.monotonic)

    def joined(self) -> None:
        """Record that the group has this member."""
        with self._lock:
            self._role, self._said, self._joined = "consuming", "", time.monotonic()

    def said(self, error: str) -> None:
        """Record what Kafka said last; it is the reason for as long as there is no member."""
        with self._lock:
            self._said = error

    def polled(self, *, progressed: bool) -> None:
        """Record that polling goes on, and that records were completed, or that none is due."""
        # No lock: only the poll thread writes this, and it comes here with each batch.
        self._polled = time.monotonic()
        if progressed:
            self._progressed = self._polled

    def failing(self, reason: str) -> None:
        """Record the current problem; empty: there is none."""
        with self._lock:
            self._failure = reason

    def stopped(self) -> None:
        with self._lock:
            self._role = "stopped"

    def ready(self) -> HealthReport:
        """Return whether records are completed (or would be, if there were any)."""
        with self._lock:
            now = time.monotonic()
            role, stalled, silent = self._role, now - self._progressed, now - self._polled
            said = f": {self._said}" if self._said else ""
            if role != "consuming":
                reason = (
                    f"not a member of the group yet{said}" if role == "starting" else "stopped"
                )
                failure = self._failure and f"{self._failure}{said}"
                return HealthReport(ok=False, role=role, reason=failure or reason)
            if self._failure:
                return HealthReport(ok=False, role=role, reason=f"{self._failure}{said}")
            if (away := now - self._joined) > max(self.stall_after, silent + _OBSERVED_SECONDS):
                reason = f"not a member of the group for {away:.0f} s{said}"
                return HealthReport(ok=False, role=role, reason=reason)
            if silent > self.stall_after:
                return HealthReport(ok=False, role=role, reason=f"not polled for {silent:.0f} s")
            if stalled > self.stall_after:
                reason = f"records are in memory and none was completed for {stalled:.0f} s"
                return HealthReport(ok=False, role=role, reason=reason)
            gone = f"{self.expired} offsets were deleted before they were read"
            found = self.lacking, self.unmoved, gone if self.expired else ""
            but = "; ".join(each for each in found if each)
            reason = f"progressing, but {but}" if but else "progressing"
            return HealthReport(ok=True, role=role, reason=reason)
