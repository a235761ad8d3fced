"""A comparison that Python decides is decided as Starlark decides it, or is left to Starlark."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.rules.policies import starlark
from dedup.rules.policies.comparisons import plain
from dedup.rules.policies.starlark import FilterFailed, compile_expression
from outbox.event import Event

TEXTS = [
    "value.a >= 0",
    "value.a < -3",
    "value.a != 9223372036854775807",
    'value["a"] == 1',
    "value.a == 'x'",
    "value.a != 'é'",
    "value.a > 0 and value.b < 3",
    "value.a == 1 or value.b == 'x' or value.a == 2",
    "value.a > 0 and (value.b == 1 or value.b == 2)",
]
DEEP: Any = 1
for _ in range(200):
    DEEP = [DEEP]

FIELDS = st.one_of(
    st.integers(-4, 4),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["x", "é", "", "1"]),
    st.lists(st.integers(0, 2), max_size=2),
    st.just(DEEP),
)
VALUES = st.one_of(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), FIELDS),
    FIELDS,
    st.binary(max_size=2),
)


def _said(passes: Any, value: object) -> object:
    try:
        return passes(Event(topic="t", type="T", source="/s", value=value))
    except FilterFailed as error:
        return str(error)


@pytest.fixture(scope="module")
def slow() -> dict[str, Any]:
    """Return the filters that leave everything to Starlark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starlark, "plain", lambda _: None)
        return {text: compile_expression(text) for text in TEXTS}


@given(text=st.sampled_from(TEXTS), value=VALUES)
def test_the_answer_is_that_of_starlark(slow: dict[str, Any], text: str, value: object) -> None:
    assert _said(compile_expression(text), value) == _said(slow[text], value)


@pytest.mark.parametrize("text", TEXTS)
def test_plain_comparisons_are_decided_here(text: str) -> None:
    tree = starlark._parse(text)  # what the filter is compiled from
    assert plain(tree.body) is not None


@pytest.mark.parametrize(
    "text",
    [
        "value.a >= 0.5",
        "value.a == True",
        "value.a == None",
        "value.a < 'x'",
        "value.a.b == 1",
        "key == 'k'",
        "headers.a == 'x'",
        "0 <= value.a",
        "not value.a == 1",
        "value.a == 1 and value.get('b') == 1",
        "value.a == -True",
        "value.a == 1 + 1",
    ],
)
def test_whatever_is_more_is_left_to_starlark(text: str) -> None:
    assert plain(starlark._parse(text).body) is None  # as above


def test_an_expression_without_subscripts_is_none_of_these() -> None:
    assert plain(ast.parse("value.a >= 0", mode="eval").body) is None
