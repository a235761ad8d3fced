"""A subscription's state changes with its second failure in a row, and with the next success."""

import pytest

from dovecote.push.rules.reversals import Reversals


@pytest.mark.parametrize(
    ("outcomes", "turns"),
    [
        ("....", "...."),
        (".x.x", "...."),
        ("xx..", ".!!."),
        ("xxxx.x", ".!..!."),
        ("xx.xx", ".!!.!"),
    ],
)
def test_only_outcomes_that_change_the_state_are_told(outcomes: str, turns: str) -> None:
    seen = Reversals()
    told = [seen.add("hook", failed=each == "x") for each in outcomes]
    assert told == [each == "!" for each in turns]


def test_each_subscription_has_its_own_row() -> None:
    seen = Reversals()
    assert not seen.add("a", failed=True)
    assert not seen.add("b", failed=True)
    assert seen.add("a", failed=True)
