"""Report why a relay is stuck, and wait: longer each time, up to a few seconds."""

import logging
import random
import threading
import time
from collections.abc import Mapping

from relay.errors import Fenced, Full, LeaseLost, Outage, Unpublishable
from relay.health import Health, Role
from relay.metrics import Metrics

_log = logging.getLogger("dovecote.relay")

KINDS: Mapping[type[Exception], str] = {
    Outage: "outage",
    Fenced: "fenced",
    LeaseLost: "lease_lost",
    Unpublishable: "unpublishable",
    Full: "full",
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
