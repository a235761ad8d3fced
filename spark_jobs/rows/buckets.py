"""Name buckets so that each of Spark's shuffle partitions gets the same number of them."""

NONE = -1
"""The alarm of a bucket in which nothing is due until a record comes."""

_MASK = 0xFFFFFFFF
_SEED = 42


def names(buckets: int, partitions: int) -> tuple[int, ...]:
    """
    Return the names of `buckets` buckets.

    Spark assigns a group to a partition by the hash of its name. With the numbers from 0 on, some
    partitions would get twice as many buckets as others.
    """
    shares = [buckets // partitions + (p < buckets % partitions) for p in range(partitions)]
    found: list[int] = []
    name = 0
    while len(found) < buckets:
        partition = _hash(name) % partitions
        if shares[partition]:
            shares[partition] -= 1
            found.append(name)
        name += 1
    return tuple(found)


def _hash(number: int) -> int:
    """Return Spark's hash of an integer: Murmur3 of its four bytes."""
    block = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    mixed = _rotated(_SEED ^ (block & _MASK), 13) * 5 + 0xE6546B64
    mixed = (mixed & _MASK) ^ 4  # the number of bytes
    mixed = ((mixed ^ mixed >> 16) * 0x85EBCA6B) & _MASK
    mixed = ((mixed ^ mixed >> 13) * 0xC2B2AE35) & _MASK
    mixed ^= mixed >> 16
    return mixed - 2**32 if mixed >= 2**31 else mixed


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number << bits | number >> (32 - bits)) & _MASK
