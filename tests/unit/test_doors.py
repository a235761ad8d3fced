"""Each front door takes what comes, in any form, or refuses it by name; see `make fuzz`."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.doors import DOORS


@pytest.mark.parametrize("name", DOORS)
def test_what_comes_is_taken_or_refused_by_name(name: str) -> None:
    door = DOORS[name]
    bounds = settings(
        deadline=None,
        derandomize=True,
        max_examples=150,
        suppress_health_check=[HealthCheck.too_slow],
    )
    bounds(given(door.inputs)(door.take))()
