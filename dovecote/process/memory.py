"""Keep the memory that a batch gives back, C's and Python's: the next one takes it again."""

import ctypes
from collections.abc import Iterable

# From glibc's malloc.h.
_MXFAST, _TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = 1, -1, -2, -3
_MIB = 1 << 20
# From CPython's obmalloc.h.
_ARENA_BITS = 20
_WANTED = {
    # Small pieces are joined when they are freed. Kept apart, as glibc has it, they are looked
    # through again each time that something large is freed: librdkafka frees thousands of both.
    _MXFAST: 0,
    # By default what is free is given back from 128 KiB on, and taken anew page by page.
    _TRIM_THRESHOLD: 64 * _MIB,
    _TOP_PAD: 16 * _MIB,
    # The largest there is.
    _MMAP_THRESHOLD: 32 * _MIB,
}


def keep_freed() -> bool:
    """
    Let each heap keep up to 64 MiB that are free; return False where this is not glibc.

    For the process as a whole; glibc has more heaps where threads need them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    refused = [option for option, size in _WANTED.items() if mallopt(option, size) != 1]
    return not refused


class Arenas:
    """
    Python's memory for small objects, kept from the first large batches on.

    It comes in arenas of 1 MiB. One in which nothing lives any more is given back at once, and a
    new one is touched page by page, each a fault: where batches come and go, these faults took
    half of the time of the thread that reads them. So one object is kept in each arena.
    """

    def __init__(self, most: int = 64) -> None:
        """Keep `most` arenas."""
        self._most = most
        self._kept: dict[int, object] = {}

    def keep(self, objects: Iterable[object]) -> None:
        """Keep the arenas in which these small objects are, while there are fewer than `most`."""
        kept = self._kept
        for each in objects:
            if len(kept) >= self._most:
                return
            # Where it is, in CPython.
            kept.setdefault(id(each) >> _ARENA_BITS, each)
