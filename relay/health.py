"""The state of a relay, for `/readyz`, and its failures, for the log."""

import logging
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from dovecote.process.health import HealthReport
from dovecote.process.proof import LastAnswer, Proof
from relay.errors import Fenced, LeaseLost, Outage, Unpublishable
from relay.metrics import Metrics
from relay.rules.condition import RelaySeen, Role, condition
from relay.rules.places.progress import Lag


@dataclass(slots=True)
class Health:
    """
    Facts that the loop records and the HTTP server reads.

    Ready: nothing is failing, Kafka answers, and within `stall_after` seconds a batch was
    published, or there was none to publish, or (on standby) the lock was asked for. A process that
    runs but moves nothing is not ready.
    """

    stall_after: float = 10.0
    behind_after: float = 60.0
    """An event may wait this long for its turn, in seconds."""
    warn_bytes: int | None = None
    """So many bytes of the write-ahead log may wait."""

    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _role: Role = "starting"
    _failure: str = ""
    _progressed: float = field(default_factory=time.monotonic)
    _active: float = field(default_factory=time.monotonic)
    _published: float | None = None
    _lag: Lag = field(default_factory=Lag)
    _parked: int = 0
    _parked_at: float | None = None
    _parked_why: str = ""
    _ending: bool = False
    _proof: Proof | None = None

    def progressed(self, role: Role) -> None:
        """Record that all is well now."""
        with self._lock:
            now = time.monotonic()
            if role != self._role:
                self._active = now
            if role != "active":
                # A standby has no use for the facts of an active relay, nor has its next term.
                self._published = self._parked_at = None
                self._lag, self._parked = Lag(), 0
            self._role, self._failure, self._progressed = role, "", now

    def published(self) -> None:
        """Record that the broker confirmed events."""
        with self._lock:
            self._published = time.monotonic()
        if self._proof is not None:
            self._proof.heard()

    def measured(self, lag: Lag, parked: int) -> None:
        """Record what waits, as far as it is known, and how many events are parked."""
        with self._lock:
            self._lag, self._parked = lag, parked

    def parked(self, count: int, why: str) -> None:
        """Record that an event was parked for its own sake; `count` are parked in all."""
        with self._lock:
            self._parked, self._parked_why = count, why
            self._parked_at = time.monotonic()

    def proven_by(self, proof: Proof) -> None:
        """Take word of Kafka from `proof`, for as long as nothing is published."""
        self._proof = proof

    def failing(self, reason: str) -> None:
        """Record why the relay is stuck; the reason stands until something progresses."""
        with self._lock:
            self._failure = reason

    def ending(self) -> None:
        """Record that the relay was asked to end."""
        self._ending = True

    def role(self) -> Role:
        with self._lock:
            return self._role

    def ready(self) -> HealthReport:
        """Return whether events flow, or would if there were any."""
        seen = self._seen()
        state, reason = condition(seen)
        stuck = bool(seen.failure or seen.trouble) or seen.progressed > seen.stall_after
        ok = not stuck and seen.role != "stopped"
        return HealthReport(ok=ok, role=seen.role, reason=reason, state=state)

    def _seen(self) -> RelaySeen:
        answered = LastAnswer(0.0) if self._proof is None else self._proof.seen()
        with self._lock:
            now = time.monotonic()
            return RelaySeen(
                role=self._role,
                failure=self._failure,
                progressed=now - self._progressed,
                stall_after=self.stall_after,
                ending=self._ending,
                active=now - self._active,
                published=None if self._published is None else now - self._published,
                answered=answered.seconds,
                trouble=answered.trouble,
                lag_rows=self._lag.rows or 0,
                lag_seconds=self._lag.seconds or 0.0,
                behind_after=self.behind_after,
                lag_bytes=self._lag.bytes or 0,
                warn_bytes=self.warn_bytes,
                parked=self._parked,
                parked_since=None if self._parked_at is None else now - self._parked_at,
                parked_why=self._parked_why,
            )


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

    @property
    def health(self) -> Health:
        """The health of the process, for facts that are no trouble."""
        return self._health

    def recovered(self, role: Role) -> None:
        """Note that all is well."""
        if self._since is not None:
            what = "ending" if role == "stopped" else "going on"
            _log.info("%s after %.1f s of trouble", what, time.monotonic() - self._since)
        self._since, self._attempt = None, 0
        self._health.progressed(role)
