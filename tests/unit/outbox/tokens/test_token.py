"""An answer counts as a token or is refused, and a token is renewed in time."""

import math
import sys
from typing import Any

import pytest

from outbox.tokens.token import (
    Token,
    claims,
    extensions_problem,
    given_until,
    pause,
    renewal,
    taken,
)

NOW = 1_000.0


def test_an_answer_is_a_token_or_a_tuple_with_the_same_fields() -> None:
    token = Token("abc", NOW + 60, "relay", {"logicalCluster": "lkc-1"})
    assert taken(token, NOW) == token
    assert taken(("abc", NOW + 60, "relay", {"logicalCluster": "lkc-1"}), NOW) == token
    assert taken(("abc", NOW + 60), NOW) == Token("abc", NOW + 60)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "is no token"),
        ("tops3cret", "is no token"),
        (("tops3cret",), "is no token"),
        (("tops3cret", NOW + 1, "x", {}, 5), "is no token"),
        (("", NOW + 60), "is no token"),
        (("tops3cret", "soon"), "is no token"),
        (("tops3cret", NOW + 60, None), "is no token"),
        (("tops3cret\x01", NOW + 60), "characters"),
        (("tops3cretü", NOW + 60), "characters"),
        (("tops3cret", NOW + 60, "", {"auth": "x"}), "auth"),
        (("tops3cret", NOW + 60, "", []), "must be a table"),
        (("tops3cret", NOW), "expired already"),
        (("tops3cret", math.nan), "expiry is no time"),
        (("tops3cret", math.inf), "expiry is no time"),
        (("tops3cret", 10**400), "expiry is no time"),
    ],
)
def test_another_answer_is_refused_and_not_quoted(answer: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        taken(answer, NOW)
    assert "tops3cret" not in str(refused.value)


def test_a_token_is_in_no_repr() -> None:
    assert "tops3cret" not in repr(Token("tops3cret", NOW))


@pytest.mark.parametrize(
    ("extensions", "says"),
    [
        ({"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}, None),
        ({}, None),
        ({"auth": "x"}, "'auth'"),
        ({"a-b": "x"}, "'a-b'"),
        ({"": "x"}, "''"),
        ({"a": 5}, "'a'"),
        ({"a": "b\x01auth=Bearer c"}, "'a'"),
        ("a=b", "must be a table"),
    ],
)
def test_extensions_are_names_of_letters_with_printable_text(
    extensions: object, says: str | None
) -> None:
    found = extensions_problem(extensions)
    assert found is None if says is None else says in str(found)


def test_a_token_is_renewed_after_half_of_its_life() -> None:
    assert renewal(Token("abc", NOW + 60), NOW) == NOW + 30
    assert renewal(Token("abc", NOW + 0.1), NOW) == NOW + 0.5


@pytest.mark.parametrize("expires", [NOW + 900_000, 2**63 - 1, sys.float_info.max])
def test_a_token_that_lives_for_more_than_a_day_is_renewed_twice_a_day(expires: float) -> None:
    assert renewal(taken(("abc", expires), NOW), NOW) == NOW + 43_200


def test_a_provider_that_fails_is_asked_after_pauses_that_grow_to_ten_seconds() -> None:
    pauses = [pause(each) for each in range(1, 9)]
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10, 10]
    assert pause(10_000) == 10


def test_a_client_asks_right_after_the_renewal_and_soon_while_there_is_none() -> None:
    """It asks after four fifths of what it is given."""
    assert NOW + (given_until(NOW + 30, NOW) - NOW) * 0.8 == pytest.approx(NOW + 30.5)
    assert NOW + (given_until(NOW - 99, NOW) - NOW) * 0.8 == pytest.approx(NOW + 2)


@pytest.mark.parametrize("text", ["", "abc", "a.b.c", "a.W10.c", "a.bnVsbA.c", "a.é.c", "..."])
def test_what_is_no_web_token_has_no_claims(text: str) -> None:
    assert claims(text) == {}
