"""Clocks that differ are reported before Kafka refuses what is published."""

import pytest

from relay.operating.clocks import compare

FUTURE = (
    "the newest record of progress is 90 s ahead of this machine's clock: so is the relay's, or "
    "the broker's"
)


@pytest.mark.parametrize(
    ("postgres", "newest", "says"),
    [
        (0.2, -500.0, ["the clocks of this machine, of Postgres and of progress in Kafka agree"]),
        (0.2, None, ["the clocks of this machine, of Postgres agree"]),
        (-3_600.0, None, ["Postgres's clock is 3600 s behind this machine's"]),
        (3_600.0, 0.0, ["Postgres's clock is 3600 s ahead of this machine's"]),
        (
            0.0,
            90.0,
            [FUTURE],
        ),
    ],
)
def test_clocks_that_differ_are_told(
    postgres: float, newest: float | None, says: list[str]
) -> None:
    found = list(compare(postgres, newest))
    assert [each.what for each in found] == says
    assert all(each.resolve for each in found if each.level == "warn")
