"""Each state has a meaning, a colour and an exit status, and the docs have the same."""

import re
from pathlib import Path

import pytest

from dovecote.process.states import Colour, State, exit_status, severity, worst

_PAGE = Path(__file__).parents[4] / "docs" / "states.md"
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (\d) \| (.+?) \|$", re.MULTILINE)


def test_the_page_has_each_state_as_the_code_has_it() -> None:
    found = _ROW.findall(_PAGE.read_text(encoding="utf-8"))
    assert found == [
        (each.value, each.colour.value, str(each.exit_status), each.meaning) for each in State
    ]


def test_green_are_those_that_work_and_those_that_could() -> None:
    assert {each for each in State if each.is_green} == {State.WORKING, State.IDLE, State.STANDBY}
    assert {each for each in State if each.colour is Colour.RED} == {State.FAILING, State.STALLED}
    assert {each for each in State if each.colour is Colour.GREY} == {State.UNKNOWN}


def test_no_red_or_grey_state_ends_a_command_with_0() -> None:
    for each in State:
        if each.colour in {Colour.RED, Colour.GREY}:
            assert each.exit_status == 1
        if each.is_green:
            assert each.exit_status == 0


@pytest.mark.parametrize(
    ("of", "whole"),
    [
        ((), State.UNKNOWN),
        ((State.STANDBY, State.WORKING), State.WORKING),
        ((State.STANDBY, State.IDLE), State.IDLE),
        ((State.WORKING, State.PAUSED), State.PAUSED),
        ((State.FAILING, State.STALLED, State.WORKING), State.STALLED),
        ((State.UNKNOWN, State.BEHIND), State.UNKNOWN),
    ],
)
def test_a_whole_is_as_well_as_its_worst_member(of: tuple[State, ...], whole: State) -> None:
    assert worst(of) is whole


def test_each_state_has_a_severity_of_its_own() -> None:
    assert sorted(map(severity, State)) == list(range(len(State)))


def test_a_command_that_shows_several_ends_as_the_worst_of_them() -> None:
    assert exit_status([State.WORKING, State.STANDBY]) == 0
    assert exit_status([State.WORKING, State.STARTING]) == 1
    assert exit_status([]) == 0


def test_a_word_of_another_version_is_no_known_state() -> None:
    assert State("resharding") is State.UNKNOWN
