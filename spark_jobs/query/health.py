"""A Spark job's own state: ready because batches are done, or there is nothing to do."""

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["starting", "running", "stopped"]


@dataclass(frozen=True, slots=True)
class Report:
    """One look at a job; `ok` decides between 200 and 503."""

    ok: bool
    role: Role
    reason: str


@dataclass(slots=True)
class Health:
    """
    Facts that Spark reports and the HTTP server reads.

    Ready: within `stall_after` seconds a batch was done and recorded, or Spark has looked and
    found nothing to do. A query that runs but finishes nothing is not ready.
    """

    stall_after: float
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _progressed: float = field(default_factory=time.monotonic)

    def progressed(self) -> None:
        """Record that a batch is done, or that there was none to do."""
        with self._lock:
            self._role, self._progressed = "running", time.monotonic()

    def stopped(self) -> None:
        with self._lock:
            self._role = "stopped"

    def ready(self) -> Report:
        """Return whether batches get done, or would be if there were any."""
        with self._lock:
            role, idle = self._role, time.monotonic() - self._progressed
        if role == "stopped":
            return Report(ok=False, role=role, reason="stopped")
        if idle > self.stall_after:
            reason = f"no batch was finished for {idle:.0f} s"
            return Report(ok=False, role=role, reason=reason)
        if role == "starting":
            return Report(ok=False, role=role, reason="no batch was finished yet")
        return Report(ok=True, role=role, reason="progressing")
