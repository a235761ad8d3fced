"""Postgres snapshots as values: which transactions were visible at one instant."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

# Postgres compares ids of 32 bits: half of them are older than any given id, half younger.
_HALF = 1 << 31


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    The value of `pg_current_snapshot()`: transactions below `xmax` are over, but for `xip`.

    Its text form is Postgres's own, `xmin:xmax:xip,xip`.
    """

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Return the snapshot that `text` denotes.

        Raises:
            ValueError: `text` is not a snapshot.
        """
        xmin, xmax, xip = text.split(":")
        running = tuple(int(xid) for xid in xip.split(",")) if xip else ()
        snapshot = cls(int(xmin), int(xmax), running)
        if not 0 < snapshot.xmin <= snapshot.xmax or any(
            not snapshot.xmin <= xid < snapshot.xmax for xid in running
        ):
            msg = f"{text!r} is not a snapshot"
            raise ValueError(msg)
        return snapshot

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.xip))}"

    def before(self, xmax: int) -> "Snapshot":
        """Return this snapshot limited to the transactions below `xmax`."""
        if xmax >= self.xmax:
            return self
        running = tuple(xid for xid in self.xip if xid < xmax)
        return Snapshot(min(running, default=xmax), xmax, running)

    def sees(self, xid: int) -> bool:
        """Return whether the transaction `xid` is visible here, if it committed."""
        return xid < self.xmax and xid not in self.xip

    def whole(self, xid: int) -> int:
        """Return the full id of a present-day transaction whose low half is `xid`."""
        low = (xid - self.xmax + _HALF) % (2 * _HALF)
        return self.xmax + low - _HALF

    def covers(self, other: "Snapshot") -> bool:
        """Return whether everything that is visible in `other` is visible here."""
        return other.xmax <= self.xmax and not any(other.sees(xid) for xid in self.xip)

    def union(self, other: "Snapshot") -> "Snapshot":
        """Return a snapshot that sees all that either sees: each may see one transaction more."""
        late, early = (self, other) if self.xmax >= other.xmax else (other, self)
        return _without(late.xmax, (xid for xid in late.xip if not early.sees(xid)))

    def adding(self, xids: Collection[int]) -> "Snapshot":
        """Return a snapshot that also sees the transactions `xids`."""
        xmax = max(self.xmax, max(xids, default=0) + 1)
        return _without(xmax, (x for x in (*self.xip, *range(self.xmax, xmax)) if x not in xids))


def _without(xmax: int, unseen: Iterable[int]) -> Snapshot:
    xip = tuple(sorted(unseen))
    return Snapshot(min(xip, default=xmax), xmax, xip)


BEGINNING = Snapshot(1, 1)
"""Sees nothing: everything committed is still to be published."""


class Moment(NamedTuple):
    """A snapshot, and a position of the log after all that it sees."""

    snapshot: Snapshot
    lsn: int
