"""A circuit that opens when an endpoint fails again and again, until a probe succeeds."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Breaker:
    """
    Counts failures with no success between them; its clock is the caller's.

    Open it lets nothing pass. After a while it lets one request pass, a probe: if that succeeds
    the circuit is closed, if not it stays open for twice as long.
    """

    threshold: int = 10
    """Failures in a row that open it; 0: it never opens."""
    base: float = 1.0
    """Seconds that it is open for the first time."""
    ceiling: float = 60.0
    failures: int = 0
    opened: int = 0
    """How often in a row it has opened."""
    until: float = 0.0
    """Open: not before this a probe may pass."""
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
        """Close: even an answer that comes late says that the endpoint is there."""
        self.failures, self.opened, self.probing = 0, 0, False

    def failed(self, now: float, *, probe: bool) -> bool:
        """Take a failure, of a probe or of another; tell whether the circuit opens by it."""
        self.failures += 1
        if self.closed:
            if not self.threshold or self.failures < self.threshold:
                return False
        elif not probe:
            return False  # it was sent before the circuit opened, which it did for less
        self.probing = False
        self.until = now + min(self.base * 2.0 ** min(self.opened, 30), self.ceiling)
        self.opened += 1
        return True

    def abandoned(self) -> None:
        """Take that a probe came to nothing, for no fault of the endpoint."""
        self.probing = False
