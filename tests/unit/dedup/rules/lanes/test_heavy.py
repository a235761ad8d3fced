"""Headers that are large count towards the memory of a consumer, until their record is done."""

from dedup.rules.lanes.assigned import assigned
from dedup.rules.lanes.lanes import Stretch
from dedup.rules.lanes.offsets import Offsets
from dedup.rules.record import Record


def test_large_headers_are_counted_until_their_record_is_completed() -> None:
    found = assigned(Stretch[Record]("orders", 3, 1, {}), Offsets(0), max_skew=10)
    records = [Record("orders", 3, n, 0, b"k", b"value", ()) for n in range(2)]
    for record in records:
        found.offsets.polled(record.offset)
    found.records, found.size, found.heavy = 2, 12 + 5_000, {1: 5_000}

    found.completed([0], 6)
    assert found.size == 6 + 5_000
    found.completed([1], 6)
    assert (found.size, found.heavy) == (0, {})
