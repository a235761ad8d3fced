"""The records of a partition that may be in flight: the first few that are not committed."""

from collections import deque


class Window:
    """
    The window of one partition, in the order of its offsets, which may have gaps.

    At most `size` records are begun and not committed, so no more are in flight, and no more come
    again after a crash. A commit makes room for others. With `whole`, it does so only once it
    covers the whole bundle.
    """

    def __init__(self, size: int, *, whole: bool = False) -> None:
        self._size, self._whole = size, whole
        self._offsets: deque[int] = deque()
        self._finished: set[int] = set()

    def begins(self, offset: int) -> bool:
        """Take an offset, any number of times; return whether its record may be begun."""
        offsets = self._offsets
        if not offsets or offset > offsets[-1]:
            offsets.append(offset)
        return len(offsets) <= self._size or offset <= offsets[self._size - 1]

    def finished(self, offset: int) -> bool:
        """Mark a record as finished; return whether all are that may be begun before a commit."""
        self._finished.add(offset)
        return len(self._finished) >= self._size

    def committed(self, position: int) -> None:
        """Record a commit of all records before `position`."""
        offsets = self._offsets
        if self._whole and offsets and position <= offsets[min(self._size, len(offsets)) - 1]:
            return  # a part of a bundle makes no room for the next
        while offsets and offsets[0] < position:
            self._finished.discard(offsets.popleft())
