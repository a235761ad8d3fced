"""Partitions that are added make no record misplaced, and hide none that is."""

import pytest

from dovecote.audit import comparing, continuing
from dovecote.audit.rules.ids import partition_of
from tests.support.audited_apart import WRITTEN, Apart, described, partition, record, row

# By both numbers of partitions it would be in another one.
KEY = next(
    key
    for key in (str(n).encode() for n in range(100))
    if (partition_of(key, 2), partition_of(key, 3)) == (1, 0)
)


@pytest.mark.parametrize("since", [None, WRITTEN - 1])
@pytest.mark.parametrize("number", [2, 3])
def test_records_after_partitions_were_added_are_not_misplaced_before_the_next_look(
    monkeypatch: pytest.MonkeyPatch, number: int, since: int | None
) -> None:
    for each in (comparing, continuing):
        monkeypatch.setattr(each, "wall", lambda: WRITTEN)
    apart = Apart(topics=described(partition(0), partition(1)))
    apart.comparison.matcher.placed_from = since
    apart.read()
    apart.topics = described(*(partition(each) for each in range(number)))
    apart.rows, apart.records = [row(1, key=KEY)], [record(1, key=KEY)]
    apart.read()
    assert apart.judge() == ([] if number > 2 else ["misplaced"])
