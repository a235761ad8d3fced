"""Names are checked before they get into SQL."""

import pytest

from outbox.errors import BadSettings
from outbox.schema.templates import require_name


@pytest.mark.parametrize("name", ["", "a\0b", "100%", "shop\udcff", "ü" * 40])
def test_a_name_that_postgres_cannot_have_is_a_bad_setting(name: str) -> None:
    with pytest.raises(BadSettings, match="schema name"):
        require_name(name)


@pytest.mark.parametrize("name", ["outbox", 'sh"op', "über uns", "a\nb", "🕊"])
def test_any_other_name_is_taken(name: str) -> None:
    require_name(name)
