import sys

import pytest

from dovecote.process.memory import take_turns


def test_who_wants_the_interpreter_has_it_sooner_than_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", asked.append)
    take_turns()
    assert 0 < asked[0] < 0.001
