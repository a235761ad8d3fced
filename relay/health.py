"""The state of a relay, for `/readyz`, and its failures, for the log."""

import logging
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dovecote.process.health import HealthReport
from relay.errors import Fenced, LeaseLost, Outage, Unpublishable
from relay.metrics import Metrics

Role = Literal["starting", "standby", "active", "stopped"]


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

    def ready(self) -> HealthReport:
        """Return whether events flow, or would if there were any."""
        with self._lock:
            idle = time.monotonic() - self._progressed
            if self._failure:
                return HealthReport(ok=False, role=self._role, reason=self._failure)
            if idle > self.stall_after:
                reason = f"no progress for {idle:.0f} s"
                return HealthReport(ok=False, role=self._role, reason=reason)
            return HealthReport(ok=self._role != "stopped", role=self._role, reason="progressing")


_log = logging.getLogger("dovecote.relay")

KINDS: Mapping[type[Exception], str] = {
    Outage: "outage",
    Fenced: "fenced",
    LeaseLost: "lease_lost",
    Unpublishable: "unpublishable",
}
"""The names of failures in the log, in `/readyz` and in metrics."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class Trouble:
    """The failures of one process since something last went well."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._since: float | None = None
        self._attempt = 0

    def failed(self, error: Exception, metrics: Metrics, stop: threading.Event) -> None:
        """Count and report a failure, and wait before the next attempt."""
        kind = KINDS[type(error)]
        metrics.failed(kind)
        self._health.failing(f"{kind}: {error}")
        self._since = self._since or time.monotonic()
        pause = min(_FIRST_PAUSE * 2**self._attempt, _LONGEST_PAUSE)
        self._attempt = min(self._attempt + 1, 16)
        if stop.is_set():
            _log.warning("%s: %s; nothing is lost", kind, error)
            return
        _log.warning("%s: %s; nothing is lost, trying again in %.1f s", kind, error, pause)
        # Jitter spreads relays that lost the same broker at the same time.
        stop.wait(pause * random.uniform(0.5, 1))  # noqa: S311  # no secret

    def slow(self, reason: str) -> None:
        """Report that a server takes its time, while we still wait for it."""
        self._health.failing(f"{KINDS[Outage]}: {reason}")
        if self._since is None:
            self._since = time.monotonic()
            _log.warning("%s; nothing is lost, still waiting", reason)

    def recovered(self, role: Role) -> None:
        """Note that all is well."""
        if self._since is not None:
            what = "ending" if role == "stopped" else "going on"
            _log.info("%s after %.1f s of trouble", what, time.monotonic() - self._since)
        self._since, self._attempt = None, 0
        self._health.progressed(role)
