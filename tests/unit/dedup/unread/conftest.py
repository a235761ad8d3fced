"""A watch whose clock and answers a test sets."""

import pytest

from tests.support.watched import Watched


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)
