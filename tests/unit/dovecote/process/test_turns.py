import sys

import pytest

from dovecote.process.memory import take_turns


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(sys, "setswitchinterval", found.append)
    return found


def test_who_wants_the_interpreter_has_it_sooner_than_by_default(asked: list[float]) -> None:
    take_turns()
    assert 0 < asked[0] < 0.001


def test_many_readers_do_not_wake_up_more_often_in_all_than_one(asked: list[float]) -> None:
    for readers in (0, 1, 10, 100):
        take_turns(readers)
    assert [each / asked[1] for each in asked] == pytest.approx([1, 1, 10, 100])


def test_no_reader_waits_longer_than_the_bound(asked: list[float]) -> None:
    take_turns(1_000_000)
    assert asked == [0.05]
