"""
The offsets of one partition polled in one assignment, and which of them are completed.

The first pending offset is the one to commit. Offsets are never counted: transaction markers,
aborted records and compaction leave gaps, and nobody completes a gap.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from dedup.rules.lanes import offset_metadata


class Commit(NamedTuple):
    """A commit for a partition."""

    offset: int
    metadata: str
    whole: bool
    """Whether the metadata covers everything completed beyond the offset."""


class Offsets:
    """
    Begins at the group's committed offset, with what was completed beyond it; not thread-safe.

    `start` None: nothing was committed yet.
    """

    __slots__ = (
        "_before",
        "_completed",
        "_end",
        "_pending",
        "_starts",
        "lacks_id",
        "last",
        "position",
        "topic_id",
    )

    def __init__(
        self,
        start: int | None = None,
        metadata: str | None = None,
        *,
        topic_id: str | None = None,
    ) -> None:
        self.topic_id = topic_id
        """Kafka's id of the topic, which is committed along; None: it is not known."""
        self.lacks_id = (
            start is not None
            and topic_id is not None
            and offset_metadata.topic_of(metadata) is None
        )
        """Whether the committed offset does not say which topic it is of."""
        self.position = start
        """The offset to commit: everything before it is completed. None: nothing is known."""
        self.last = -1 if start is None else start - 1
        """The newest offset that was polled."""
        self._before = [] if start is None else offset_metadata.decode(start, metadata)
        self._starts = [first for first, _ in self._before]
        self._pending: deque[int] = deque()
        self._completed: set[int] = set()
        self._end = -1
        """The partition's end, if nothing was polled since it was reached."""

    def polled(self, offset: int) -> bool:
        """Take an offset; return whether its record is to be handled, or was completed before."""
        if self.position is None or (offset < self.position and not self._pending):
            # This is the group's first record; or the log has lost the committed offset, and the
            # completed offsets belonged to other records.
            self.position, self._before, self._starts = offset, [], []
        self.last, self._end = offset, -1
        if self._before and self._was_completed(offset):
            if self._pending:
                self._pending.append(offset)
                self._completed.add(offset)
            else:
                self.position = offset + 1
            return False
        if not self._pending:
            self.position = offset
        self._pending.append(offset)
        return True

    def complete(self, offsets: Iterable[int]) -> None:
        """Mark offsets as completed: each was polled, and is completed once."""
        pending, completed = self._pending, self._completed
        completed.update(offsets)
        last = None
        while pending and pending[0] in completed:
            last = pending.popleft()
            completed.remove(last)
        if last is not None:
            self.position = pending[0] if pending else max(self.last + 1, self._end)

    def reached(self, end: int) -> None:
        """Record that there are no records between the newest and `end`, the partition's end."""
        if self._pending:
            self._end = end  # this also holds once the last of them is completed
        elif self.position is None or self.position < end:
            self.position = end

    def pass_over(self, offset: int) -> None:
        """Go on at `offset`: what is before it and was not polled never comes."""
        self.last = max(self.last, offset - 1)
        if not self._pending:
            self.position = offset

    @property
    def next(self) -> int | None:
        """The offset to poll next; None: nothing is known."""
        if self.position is None:
            return None
        return max(self.last + 1, self._end, 0 if self._pending else self.position)

    @property
    def skew(self) -> int:
        """Number of polled offsets from the first pending one on."""
        return len(self._pending)

    @property
    def pending(self) -> int:
        """Number of polled offsets that are not completed."""
        return len(self._pending) - len(self._completed)

    def commit(self, limit: int = offset_metadata.LIMIT) -> Commit | None:
        """Return the current commit; None: nothing was polled or committed yet."""
        if self.position is None:
            return None
        beyond = self._beyond(self.position)
        text, whole = offset_metadata.encode(self.position, beyond, limit, topic_id=self.topic_id)
        return Commit(self.position, text, whole)

    def _beyond(self, position: int) -> list[tuple[int, int]]:
        """Return the completed ranges beyond `position`, extended over the gaps next to them."""
        ranges: list[tuple[int, int]] = []
        first: int | None = None
        if self._completed:
            for offset in self._pending:
                if offset in self._completed:
                    first = offset if first is None else first
                elif first is not None:
                    ranges.append((first, offset))
                    first = None
            if first is not None:
                ranges.append((first, self.last + 1))
        # Completed in another assignment, and not reached in this one yet.
        ahead = max(self.last + 1, position)
        ranges += [(max(a, ahead), b) for a, b in self._before if b > ahead]
        return ranges

    def _was_completed(self, offset: int) -> bool:
        number = bisect_right(self._starts, offset) - 1
        return number >= 0 and offset < self._before[number][1]
