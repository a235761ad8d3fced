"""A new slot's snapshot is stored in a form that Postgres can read."""

import pytest

from outbox.schema.slots import in_order
from relay.rules.places.snapshot import Snapshot


@pytest.mark.parametrize(
    ("exported", "kept"),
    [("764:763:", "764:764:"), ("763:763:", "763:763:"), ("760:764:760,762", "760:764:760,762")],
)
def test_a_snapshot_that_ends_before_it_begins_sees_all_before_its_beginning(
    exported: str, kept: str
) -> None:
    assert in_order(exported) == kept
    assert Snapshot.parse(in_order(exported)).sees(759)
