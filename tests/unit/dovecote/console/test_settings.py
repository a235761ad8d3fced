"""Settings of the console that would be a mistake are refused in one line."""

from typing import Any

import pytest
from pydantic import ValidationError

from dovecote.console.settings import ConsoleTable

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"http": {"host": "192.0.2.1"}}, "set console.tokens"),
        ({"tokens": {"a": {"sha256": "secret"}}}, "write sha256:"),
        ({"tokens": {"a b": {"sha256": DIGEST}}}, "is no name for a token"),
        ({"tokens": {"a": {"sha256": DIGEST}, "b": {"sha256": DIGEST}}}, "have the same token"),
        ({"tokens": {"a": {"sha256": DIGEST, "rights": ["own"]}}}, "'read' or 'write'"),
        ({"every": "2m"}, "at least once a minute"),
        ({"timeout": "0.2ms"}, "from 1ms to 1h"),
        ({"timeout": "2h"}, "from 1ms to 1h"),
        ({"history": "72h"}, "at most 48h"),
        ({"prometheus": "prometheus:9090"}, "write http://host:port"),
        ({"colour": "red"}, "Extra inputs"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ConsoleTable.model_validate(given)
    assert said in str(refused.value)


def test_another_host_is_fine_with_a_token() -> None:
    table = ConsoleTable.model_validate(
        {"http": {"host": "192.0.2.1"}, "tokens": {"ops": {"sha256": DIGEST}}}
    )
    assert table.tokens["ops"].rights == ("read",)
