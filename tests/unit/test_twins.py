"""Modules that are made from others are as `python -m tests.twins` makes them."""

import pytest

from tests.support.documents import ROOT
from tests.twins import TWINS, Twin


@pytest.mark.parametrize("twin", TWINS, ids=[twin.made for twin in TWINS])
def test_a_module_is_as_it_is_made_from_its_twin(twin: Twin) -> None:
    assert (ROOT / twin.made).read_text(encoding="utf-8") == twin.text()
