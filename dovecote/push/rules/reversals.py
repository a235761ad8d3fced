"""Notice when a subscription begins or ends to fail, from the outcomes of its requests."""

from dovecote.push.rules.condition import ROW


class Reversals:
    """One writer at a time."""

    def __init__(self) -> None:
        self._in_a_row: dict[str, int] = {}

    def add(self, subscription: str, *, failed: bool) -> bool:
        """Add an outcome; return whether it is one that changes the subscription's state."""
        row = self._in_a_row.get(subscription, 0)
        if failed:
            self._in_a_row[subscription] = min(row + 1, ROW)
            return row + 1 == ROW
        self._in_a_row.pop(subscription, None)
        return row >= ROW
