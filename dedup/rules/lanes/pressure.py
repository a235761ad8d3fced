"""Decide when a consumer stops taking records, and when it starts again."""

from dataclasses import dataclass


@dataclass(slots=True)
class Valve:
    """
    Closes at `most` and opens at `least`; in between it stays as it is.

    So a level that hovers near a limit does not open and close it again and again.
    """

    most: int
    least: int
    closed: bool = False

    def at(self, level: int) -> bool:
        """Return whether the valve is closed now that `level` is reached."""
        self.closed = level > self.least if self.closed else level >= self.most
        return self.closed


def valve(most: int) -> Valve:
    """Return a valve that opens at half of the level that closes it."""
    return Valve(most, most // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on the records that a consumer has in memory."""

    records: int
    """Records that are polled and not completed."""

    bytes: int
    """Bytes of their keys and values."""


class Pressure:
    """Records and bytes together: closed while either is."""

    def __init__(self, limits: Limits) -> None:
        self._records, self._bytes = valve(limits.records), valve(limits.bytes)

    def at(self, records: int, size: int) -> bool:
        """Return whether to stop taking records."""
        by_records, by_bytes = self._records.at(records), self._bytes.at(size)
        return by_records or by_bytes
