"""A circuit breaker: it opens when an endpoint fails repeatedly, until a probe succeeds."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Breaker:
    """
    Counts failures with no success between them; the caller passes the time.

    While it is open, nothing passes. After a while it lets one request pass, a probe. If the probe
    succeeds, the circuit closes; otherwise it stays open for twice as long.
    """

    threshold: int = 10
    """Number of failures in a row that opens it; 0: it never opens."""
    base: float = 1.0
    """Seconds for which it is open the first time."""
    ceiling: float = 60.0
    failures: int = 0
    opened: int = 0
    """Number of times in a row that it has opened."""
    until: float = 0.0
    """While it is open: the time before which no probe may pass."""
    probing: bool = False

    @property
    def closed(self) -> bool:
        return not self.opened

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
        self.failures, self.opened, self.probing = 0, 0, False

    def failed(self, now: float, *, probe: bool) -> bool:
        """
        Record a failure, of a probe or of another request; return whether it opens the circuit.
        """
        self.failures += 1
        if self.closed:
            if not self.threshold or self.failures < self.threshold:
                return False
        elif not probe:
            return False  # sent before the circuit opened, so it adds nothing
        self.probing = False
        self.until = now + min(self.base * 2.0 ** min(self.opened, 30), self.ceiling)
        self.opened += 1
        return True

    def abandoned(self) -> None:
        """Record that a probe ended without a result, through no fault of the endpoint."""
        self.probing = False
