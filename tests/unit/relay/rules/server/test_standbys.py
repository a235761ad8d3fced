"""A relay that follows the log must not be one of the standbys that commits wait for."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.postgres.connect import parameters
from relay.rules.server.standbys import APPLICATION, fault


@pytest.mark.parametrize(
    "names",
    [
        "*",
        ' "*" ',
        "1 (*)",
        "FIRST 2 (one, *)",
        "any 1 (one,two , *)",
        '"Dovecote Relay (wal)"',
        'ANY 1(one, "dovecote relay (wal)")',
    ],
)
def test_a_setting_that_names_everybody_or_us_is_refused(names: str) -> None:
    found = fault(names)
    assert found is not None
    assert repr(names) in found.what


@pytest.mark.parametrize(
    "names",
    ["", " ", "one", "one, two", "ANY 1 (one, two)", "FIRST 1 (one)", '"a*"', '"say ""*"""', "3"],
)
def test_a_setting_that_names_others_is_none_of_our_business(names: str) -> None:
    assert fault(names) is None


def test_the_name_is_the_one_that_the_stream_goes_by() -> None:
    given = conninfo_to_dict(parameters("application_name=mine", purpose="wal"))
    assert given["application_name"] == APPLICATION
