"""
Kafka's own hash of many keys at once: where a producer with Kafka's partitioner puts a key.

The hash is murmur2 as in Kafka's `Utils.murmur2`; librdkafka calls it `murmur2`. NumPy computes
it for all keys together, a word of four bytes at a time.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_M, _SEED = np.uint32(0x5BD1E995), np.uint32(0x9747B28C)
_24, _15, _13 = np.uint32(24), np.uint32(15), np.uint32(13)
_POSITIVE = np.uint32(0x7FFFFFFF)


def homes(keys: Sequence[bytes | None], lanes: int) -> list[int]:
    """
    Return the lane of each key: its hash modulo `lanes`.

    A topic with a multiple of `lanes` partitions has a key in a partition of that lane.
    """
    found: list[int] = ((murmur2(keys) & _POSITIVE) % np.uint32(lanes)).tolist()
    return found


def spread(keys: Sequence[bytes | None], buckets: int, *, otherwise: int) -> list[int]:
    """Return the bucket of each key, as `homes` does; no key: `otherwise`."""
    found = homes(keys, buckets)
    if None not in keys:
        return found
    alone = otherwise % buckets
    return [alone if key is None else home for key, home in zip(keys, found, strict=True)]


def murmur2(keys: Sequence[bytes | None]) -> Array:
    """Return the hash of each key, as 32 bits without a sign; None has that of no bytes."""
    column = pa.array(keys, pa.binary())
    if not len(column):
        return np.empty(0, np.uint32)
    _, ends, data = column.buffers()
    ends = np.frombuffer(ends, np.int32, len(column) + 1).astype(np.int64)
    size = int(ends[-1])
    raw = np.zeros(size + 8, np.uint8)  # a word may be read beyond the last key
    if size:
        raw[:size] = np.frombuffer(data, np.uint8, size)
    # The word that begins at each byte: keys are not aligned.
    words = np.lib.stride_tricks.as_strided(raw[:4].view("<u4"), (size + 5,), (1,))
    start, length = ends[:-1], np.diff(ends)
    found = _SEED ^ length.astype(np.uint32)
    whole = length >> 2
    least, most = int(whole.min()), int(whole.max())
    for number in range(most):
        longer = slice(None) if number < least else np.flatnonzero(whole > number)
        found[longer] = found[longer] * _M ^ _mixed(words[start[longer] + 4 * number])
    rest = (length & 3).astype(np.uint32)
    mask = (np.uint32(1) << (rest * np.uint32(8))) - np.uint32(1)
    last = words[np.minimum(start + (whole << 2), size)] & mask
    found = np.where(rest > 0, (found ^ last) * _M, found)
    found ^= found >> _13
    found *= _M
    return found ^ found >> _15


def _mixed(words: Array) -> Array:
    words = words * _M
    words ^= words >> _24
    return words * _M
