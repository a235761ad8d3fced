"""Positions are read and written like Postgres does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.rules.places.lsn import format_lsn, parse_lsn


@given(st.integers(0, (1 << 64) - 1))
def test_what_was_written_is_read(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


def test_it_is_postgress_own_form() -> None:
    assert format_lsn(0x16B374D848) == "16/B374D848"
    assert format_lsn(5) == "0/5"


@pytest.mark.parametrize("text", ["", "5", "0/100000000", "x/1", "-1/5", "1/2/3"])
def test_anything_else_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_lsn(text)
