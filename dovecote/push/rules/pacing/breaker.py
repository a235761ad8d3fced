"""A circuit breaker: it opens when an endpoint fails repeatedly, until a probe succeeds."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Breaker:
    """
    Counts failures with no success between them; the caller passes the time.

    While it is open, nothing passes. After a while it lets one request pass, a probe. If the probe
    succeeds, the circuit closes; otherwise it stays open for twice as long.

    A refusal is an answer about one record. Several bad records may follow each other, so it takes
    more refusals than failures to open the circuit.
    """

    threshold: int = 8
    """
    Number of failures in a row that opens it; 0: it never opens. It is below the default of
    `retry.max_attempts`, so that an outage cannot use up the attempts of a lone record.
    """
    refusals_threshold: int = 20
    """Number of refusals in a row that opens it."""
    base: float = 1.0
    """Seconds for which it is open the first time."""
    ceiling: float = 60.0
    failures: int = 0
    refusals: int = 0
    opened: int = 0
    """Number of times in a row that it has opened."""
    by_refusals: bool = False
    """Whether refusals opened it, and not failures."""
    until: float = 0.0
    """While it is open: the time before which no probe may pass."""
    probing: bool = False

    @property
    def closed(self) -> bool:
        return not self.opened

    @property
    def in_a_row(self) -> int:
        """Number of failures and refusals since the last success."""
        return self.failures + self.refusals

    def wait(self, now: float) -> float | None:
        """Return for how many seconds nothing may pass; 0: pass; None: until the probe is over."""
        if self.closed:
            return 0.0
        if now < self.until:
            return self.until - now
        if self.probing:
            return None
        self.probing = True
        return 0.0

    def succeeded(self) -> None:
        """Close: even a late answer shows that the endpoint is there."""
        self.failures, self.refusals = 0, 0
        self._close()

    def failed(self, now: float, *, probe: bool) -> bool:
        """
        Record a failure, of a probe or of another request; return whether it opens the circuit.
        """
        self.failures += 1
        if self.closed:
            if not self.threshold or self.failures < self.threshold:
                return False
            self.by_refusals = False
        elif not probe:
            return False  # sent before the circuit opened, so it adds nothing
        self._open(now)
        return True

    def refused(self, now: float, *, probe: bool) -> bool:
        """Record an answer about one record; return whether it opens the circuit."""
        self.refusals += 1
        if self.closed:
            if not self.threshold or self.refusals < self.refusals_threshold:
                return False
            self.by_refusals = True
        elif not self.by_refusals:
            self.failures = 0
            self._close()  # it failed before, and now it judges records again
            return False
        elif not probe:
            return False
        self._open(now)
        return True

    def abandoned(self) -> None:
        """Record that a probe ended without a result, through no fault of the endpoint."""
        self.probing = False

    def _open(self, now: float) -> None:
        self.probing = False
        self.until = now + min(self.base * 2.0 ** min(self.opened, 30), self.ceiling)
        self.opened += 1

    def _close(self) -> None:
        self.opened, self.probing, self.by_refusals = 0, False, False
