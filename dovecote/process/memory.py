"""Keep the memory that a batch frees, in C and in Python, for the next batch to use."""

import ctypes
import gc
import sys
from collections.abc import Iterable

# From glibc's malloc.h.
_MXFAST, _TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = 1, -1, -2, -3
_MIB = 1 << 20
# From CPython's obmalloc.h.
_ARENA_BITS = 20
_WANTED = {
    # Coalesce small blocks when they are freed. By default glibc keeps them apart, and looks
    # through them each time that something large is freed: librdkafka frees thousands of both.
    _MXFAST: 0,
    # By default, free memory from 128 KiB on is returned to the system, and then faulted in page
    # by page.
    _TRIM_THRESHOLD: 64 * _MIB,
    _TOP_PAD: 16 * _MIB,
    # The largest value allowed.
    _MMAP_THRESHOLD: 32 * _MIB,
}


def keep_freed() -> bool:
    """
    Let each heap keep up to 64 MiB of free memory; return False if this is not glibc.

    This affects the whole process; glibc makes more heaps if threads need them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    refused = [option for option, size in _WANTED.items() if mallopt(option, size) != 1]
    return not refused


class Arenas:
    """
    Python's memory for small objects, kept after the first large batches.

    It comes in arenas of 1 MiB. Python returns an arena at once when nothing lives in it any more,
    and a new one costs a page fault for each page. With batches coming and going, these faults
    took half of the time of the thread that reads them. So one object is kept in each arena.
    """

    def __init__(self, most: int = 64) -> None:
        """Keep `most` arenas."""
        self._most = most
        self._kept: dict[int, object] = {}

    def keep(self, objects: Iterable[object]) -> None:
        """Keep the arenas of these small objects, while there are fewer than `most`."""
        kept = self._kept
        for each in objects:
            if len(kept) >= self._most:
                return
            # In CPython, the id is the address.
            kept.setdefault(id(each) >> _ARENA_BITS, each)


_ALLOCATIONS = 200_000


def relax() -> None:
    """
    Exempt what is loaded so far from garbage collection, collect rarely, and keep freed memory.

    This affects the whole process: rarer collections halve the cost of a record if handlers do
    little.
    """
    keep_freed()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 100)


_SECONDS, _LONGEST_SECONDS = 0.0005, 0.05


def take_turns(readers: int = 1) -> None:
    """
    Let a waiting thread have the interpreter after half a millisecond, not after five.

    This affects the whole process. A busy loop takes the interpreter again as soon as it has
    released it. Each time that another thread returns from Kafka's client with records, it waits
    for that long, several times.

    Each thread that waits wakes up at the end of each interval, to ask for the interpreter. So the
    interval grows with the threads that read, up to 50 ms: a hundred of them woke up 200,000 times
    a second, and a delivery took six times as much of the processor, or more.
    """
    sys.setswitchinterval(min(_LONGEST_SECONDS, _SECONDS * max(1, readers)))
