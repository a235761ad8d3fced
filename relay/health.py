"""The relay's own state: alive, and ready because it progresses or has nothing to do."""

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["starting", "standby", "active", "stopped"]


@dataclass(frozen=True, slots=True)
class Report:
    """One look at the relay; `ok` decides between 200 and 503."""

    ok: bool
    role: Role
    reason: str


@dataclass(slots=True)
class Health:
    """
    Facts that the loop records and the HTTP server reads.

    Ready: nothing is failing, and within `stall_after` seconds a batch was published, or there was
    none to publish, or (on standby) the lock was asked for. A process that runs but moves nothing
    is not ready.
    """

    stall_after: float = 10.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _failure: str = ""
    _progressed: float = field(default_factory=time.monotonic)

    def progressed(self, role: Role) -> None:
        """Record that all is well now."""
        with self._lock:
            self._role, self._failure, self._progressed = role, "", time.monotonic()

    def failing(self, reason: str) -> None:
        """Record why the relay is stuck; the reason stands until something progresses."""
        with self._lock:
            self._failure = reason

    def role(self) -> Role:
        with self._lock:
            return self._role

    def ready(self) -> Report:
        """Return whether events flow, or would if there were any."""
        with self._lock:
            idle = time.monotonic() - self._progressed
            if self._failure:
                return Report(ok=False, role=self._role, reason=self._failure)
            if idle > self.stall_after:
                reason = f"no progress for {idle:.0f} s"
                return Report(ok=False, role=self._role, reason=reason)
            return Report(ok=self._role != "stopped", role=self._role, reason="progressing")
