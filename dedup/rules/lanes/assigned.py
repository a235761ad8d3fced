"""A partition of this consumer: its stretch, its offsets, and its records in flight."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dedup.rules.lanes.lanes import Stretch
from dedup.rules.lanes.offset_metadata import LIMIT
from dedup.rules.lanes.offsets import Commit, Offsets
from dedup.rules.lanes.pressure import Valve, valve
from dedup.rules.record import Record


@dataclass(slots=True, eq=False)
class Assigned:
    """One partition from its assignment to its end; used by the poll thread only."""

    stretch: Stretch[Record]
    offsets: Offsets
    skew: Valve
    confirmed: Commit | None = None
    """The newest commit that the broker has confirmed."""

    records: int = 0
    """Records in line or being handled."""

    size: int = 0
    """Bytes of those records, and of their headers where these are large."""

    heavy: dict[int, int] = field(default_factory=dict)
    """The bytes of headers of records whose headers are large, by their offsets."""

    changed: bool = False
    """Whether there may be something to commit."""

    crowded: bool = False
    """
    Whether the metadata is too small for all offsets that are completed beyond the committed one.
    """

    paused: bool = False

    begun: bool = False
    """
    Whether a record has come since the client was told where to read. Before, a pause might
    overtake what it was told, and the partition would never be read (librdkafka 2190).
    """

    blocked: bool = False
    """Whether nothing is taken of it, because the client could not read a record."""

    batch: dict[bytes | None, list[Any]] = field(default_factory=dict)
    """The poll batch that is being sorted, of what the stretch's `read` makes records of."""

    times: deque[tuple[int, int]] = field(default_factory=deque)
    """First offset of each batch in memory, and when it was written."""

    def completed(self, offsets: Sequence[int], size: int) -> None:
        """Record that records are completed, whose keys and values take `size` bytes."""
        self.offsets.complete(offsets)
        self.records -= len(offsets)
        self.size -= size
        if self.heavy:
            self.size -= sum(self.heavy.pop(offset, 0) for offset in offsets)
        self.changed = True

    def age(self, now: float) -> float:
        """
        Return the age of the oldest record in memory, measured by the first record of its batch.
        """
        position, times = self.offsets.position, self.times
        while times and (
            not self.offsets.skew or (len(times) > 1 and _is_past(times[1], position))
        ):
            times.popleft()
        return max(0.0, now - times[0][1] / 1000) if times else 0.0

    def to_commit(self, limit: int = LIMIT) -> Commit | None:
        """
        Return the next commit; None: everything is committed already.

        `limit` is how much metadata the broker takes.
        """
        if not self.changed:
            return None
        self.changed = False
        commit = self.offsets.commit(limit)
        if commit is None or commit == self.confirmed:
            return None
        # If the broker takes no metadata, waiting for each pending record would cost more than
        # repeats do.
        self.crowded = not commit.whole and limit > 0
        return commit

    def is_skewed(self) -> bool:
        """Return whether the partition has to wait for its first pending record."""
        return self.skew.at(self.skew.most if self.crowded else self.offsets.skew)


def assigned(
    stretch: Stretch[Record],
    offsets: Offsets,
    *,
    max_skew: int,
) -> Assigned:
    """
    Return a newly assigned partition.

    An offset that was committed without the id of its topic is committed again, with the id.
    """
    start = None if offsets.position is None or offsets.lacks_id else offsets.commit()
    return Assigned(
        stretch,
        offsets,
        valve(max_skew),
        confirmed=start,
        changed=offsets.lacks_id,
    )


def _is_past(batch: tuple[int, int], position: int | None) -> bool:
    return position is not None and batch[0] <= position
