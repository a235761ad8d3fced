"""Buckets are spread evenly over the partitions of the shuffle."""

from collections import Counter

import pytest

from spark_jobs.rows.buckets import _hash, names


def test_the_hash_is_that_of_spark() -> None:
    assert [_hash(0), _hash(1), _hash(2)] == [933211791, -559580957, 1765031574]


@pytest.mark.parametrize(("buckets", "partitions"), [(1, 1), (1, 4), (16, 2), (16, 4), (50, 7)])
def test_each_partition_gets_its_share(buckets: int, partitions: int) -> None:
    found = names(buckets, partitions)
    assert len(set(found)) == buckets
    shares = Counter(_hash(name) % partitions for name in found)
    assert max(shares.values()) - min(shares.get(p, 0) for p in range(partitions)) <= 1
    assert names(buckets, partitions) == found
