"""Kafka's hash of many keys at once."""

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rows.homes import homes, murmur2

# From Kafka's own UtilsTest.testMurmur2, without a sign.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def _scalar(data: bytes) -> int:
    """Return Kafka's `Utils.murmur2` as it is written there, a byte after the other."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    found = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * m & mask
        word = (word ^ word >> 24) * m & mask
        found = found * m & mask ^ word
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * m & mask
    found = (found ^ found >> 13) * m & mask
    return found ^ found >> 15


def test_the_hash_is_kafkas() -> None:
    assert murmur2(list(KNOWN)).tolist() == [each % 2**32 for each in KNOWN.values()]


@given(st.lists(st.binary(max_size=70)))
def test_many_keys_have_the_hashes_that_each_has(keys: list[bytes]) -> None:
    assert murmur2(keys).tolist() == list(map(_scalar, keys))


def test_a_home_is_the_partition_of_a_topic_with_as_many_partitions() -> None:
    assert homes([b"21", b"foobar"], 7) == [
        (-973932308 & 0x7FFFFFFF) % 7,
        (-790332482 & 0x7FFFFFFF) % 7,
    ]
    assert homes([], 7) == []
