"""Have the C library keep the memory that a batch gives back: the next one takes it again."""

import ctypes

# From glibc's malloc.h.
_MXFAST, _TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = 1, -1, -2, -3
_MIB = 1 << 20
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
