"""
Decide how the next batch is sent, on the way past an event that is refused.

A broker refuses whole requests: for one event in them, or because together they are more than the
topic takes at once. Sent one by one, who is refused is to blame; if nobody is, requests are made
smaller from then on.
"""

from dataclasses import dataclass

# So many events are sent one by one, at most, in one transaction.
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
    """Larger requests than this were refused for their size."""
    _then_one_by_one: bool = False
    _suspected: int | None = None

    def __post_init__(self) -> None:
        self.most = self.most or self.full

    def searches(self, before: int, request_bytes: int) -> None:
        """Find out who is to blame for the refusal of a request, behind `before` events."""
        self._then_one_by_one = before > _CAREFUL
        self.one_by_one = not self._then_one_by_one
        self.most = before if self._then_one_by_one else min(_CAREFUL, self.full)
        self._suspected = request_bytes

    def found(self) -> None:
        """Note that an event is to blame, and will be parked."""
        self._suspected = None

    def has_changed(self) -> bool:
        """Note that a batch was taken; tell whether the next one is to be sent otherwise."""
        before = (self.most, self.one_by_one)
        if self._then_one_by_one:
            self.most, self.one_by_one = min(_CAREFUL, self.full), True
        elif self.one_by_one:
            if self._suspected is not None:
                # One by one they went: it was for their size together.
                self.request_bytes = max(_SMALLEST, self._suspected // 2)
            self.most, self.one_by_one, self._suspected = self.full, False, None
        else:
            self.most = self.full
        self._then_one_by_one = False
        return (self.most, self.one_by_one) != before

    def properties(self, given: str) -> dict[str, str]:
        """Return the producer's properties that make it bundle so; `given` is its batch.size."""
        if self.one_by_one:
            return {"batch.num.messages": "1"}
        if self.request_bytes is not None:
            return {"batch.size": str(min(int(given), self.request_bytes))}
        return {}
