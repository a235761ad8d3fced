"""Decide in which partition a key lies, as the producers of an outbox do."""

_SEED, _M, _R = 0x9747B28C, 0x5BD1E995, 24
_ALL = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among so many: murmur2, as Java's producers have it."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    length = len(data)
    found = (_SEED ^ length) & _ALL
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _ALL
        word = (word ^ word >> _R) * _M & _ALL
        found = (found * _M & _ALL) ^ word
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _M & _ALL
    found = (found ^ found >> 13) * _M & _ALL
    return found ^ found >> 15
