"""Postgres snapshots as values: which transactions were visible at one instant."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    What `pg_current_snapshot()` tells: transactions below `xmax` are over, but for those in `xip`.

    Its text form is Postgres's own, `xmin:xmax:xip,xip`.
    """

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Return the snapshot that `text` writes.

        Raises:
            ValueError: it is not one.
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
        """Return what this snapshot tells of the transactions below `xmax`, and no more."""
        if xmax >= self.xmax:
            return self
        running = tuple(xid for xid in self.xip if xid < xmax)
        return Snapshot(min(running, default=xmax), xmax, running)

    def sees(self, xid: int) -> bool:
        """Tell whether the transaction `xid`, if it committed, is visible here."""
        return xid < self.xmax and xid not in self.xip


BEGINNING = Snapshot(1, 1)
"""Sees nothing: everything committed is still to be published."""
