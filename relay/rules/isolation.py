"""
Decide how to send the next batch, to get past a refused event.

A broker refuses whole requests: because of one event in them, or because together they exceed the
topic's limit. If events are sent one by one, the refused one is to blame; if none is refused,
requests are smaller from then on.
"""

from dataclasses import dataclass

# The most events that one transaction sends one by one.
_CAREFUL = 1_000
# A request is never made smaller than this, in bytes.
_SMALLEST = 1_000


@dataclass(slots=True)
class Isolation:
    """How many events the next batch may have, and how the producer bundles them."""

    full: int
    most: int = 0
    one_by_one: bool = False
    request_bytes: int | None = None
    """Requests larger than this were refused for their size."""
    _then_one_by_one: bool = False
    _suspected: int | None = None

    def __post_init__(self) -> None:
        self.most = self.most or self.full

    def searches(self, before: int, request_bytes: int) -> None:
        """Start to search for the event that caused a request's refusal, after `before` events."""
        self._then_one_by_one = before > _CAREFUL
        self.one_by_one = not self._then_one_by_one
        self.most = before if self._then_one_by_one else min(_CAREFUL, self.full)
        self._suspected = request_bytes

    def found(self) -> None:
        """Note that an event is to blame and will be parked."""
        self._suspected = None

    def has_changed(self) -> bool:
        """Note that a batch was taken; return whether the next one is to be sent differently."""
        before = (self.most, self.one_by_one)
        if self._then_one_by_one:
            self.most, self.one_by_one = min(_CAREFUL, self.full), True
        elif self.one_by_one:
            if self._suspected is not None:
                # One by one they were accepted, so the request was too large as a whole.
                self.request_bytes = max(_SMALLEST, self._suspected // 2)
            self.most, self.one_by_one, self._suspected = self.full, False, None
        else:
            self.most = self.full
        self._then_one_by_one = False
        return (self.most, self.one_by_one) != before

    def properties(self, given: str) -> dict[str, str]:
        """Return the producer's properties for this bundling; `given` is its usual batch.size."""
        if self.one_by_one:
            return {"batch.num.messages": "1"}
        if self.request_bytes is not None:
            return {"batch.size": str(min(int(given), self.request_bytes))}
        return {}
