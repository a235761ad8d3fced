"""Whether a server can make a slot for the log."""

import pytest

from outbox.schema.slots import can_decode


@pytest.mark.parametrize(
    ("wal_level", "effective", "can"),
    [
        ("logical", None, True),
        ("replica", None, False),
        ("minimal", None, False),
        # PostgreSQL 19 raises it with the first slot.
        ("replica", "replica", True),
        ("replica", "logical", True),
        ("logical", "logical", True),
        ("minimal", "minimal", False),
    ],
)
def test_the_first_slot_raises_the_level_from_postgresql_19_on(
    wal_level: str,
    effective: str | None,
    can: bool,  # noqa: FBT001  # a parameter
) -> None:
    assert can_decode(wal_level, effective) is can
