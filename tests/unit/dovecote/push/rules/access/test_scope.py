"""A token uses what its lists cover, and nothing beyond, however a name or URL is put."""

import re
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from dedup.rules.topics import matcher
from dovecote.push.rules.access.scope import (
    NOBODY,
    Scope,
    beginning,
    covers,
    covers_all_of,
    everything,
    overlap,
    reaches,
    wrong_url,
)
from dovecote.push.rules.subscription.subscription import Subscription, subscription

SHOP = Scope(
    name="shop",
    owner="shop",
    rights=frozenset({"read", "write"}),
    sees_all=False,
    ids=("shop.*",),
    brokers=("default",),
    topics=("orders", "shop.*"),
    groups=("shop-*",),
    dead_letter_topics=("shop.dead",),
    secrets=("env:SHOP_*", "file:shop"),
    endpoints=("https://hooks.example/shop", "https://*.shop.example"),
)
MINE: dict[str, Any] = {
    "id": "shop.a",
    "topics": ["orders"],
    "endpoint": {"url": "https://hooks.example/shop/x"},
}
SECRET = "whsec_" + "A" * 32


def refused(**changes: Any) -> list[str]:
    return [path for path, _ in SHOP.refusals(subscription({**MINE, **changes}))]


def to(url: str, **headers: str) -> dict[str, Any]:
    return {"url": url, "headers": headers}


@pytest.mark.parametrize(
    ("changes", "beyond"),
    [
        ({}, []),
        ({"topics": ["orders", "shop.tills"]}, []),
        ({"topics": ["payments"]}, ["topics.0"]),
        ({"topics": ["orders", "orders2"]}, ["topics.1"]),
        ({"topics": [], "partitions": [{"topic": "shop.x", "numbers": [0]}]}, []),
        ({"topics": [], "partitions": [{"topic": "x", "numbers": [0]}]}, ["partitions.0.topic"]),
        ({"topics": [], "pattern": r"shop\..*"}, []),
        ({"topics": [], "pattern": "shop.*"}, ["pattern"]),
        ({"topics": [], "pattern": "[a-z]*s"}, ["pattern"]),
        ({"group": "shop-1"}, []),
        ({"group": "dovecote.push.shop.a"}, []),
        ({"group": "dovecote.push.till"}, ["group"]),
        ({"group": "billing-app"}, ["group"]),
        ({"dead_letter_topic": "shop.dead"}, []),
        ({"dead_letter_topic": "dovecote.push.shop.a.dead"}, []),
        ({"dead_letter_topic": "dovecote.push.till.dead"}, ["dead_letter_topic"]),
        ({"dead_letter_topic": "payments"}, ["dead_letter_topic"]),
        ({"broker": "east"}, ["broker"]),
        ({"endpoint": to("https://hooks.example/shop", A="env:SHOP_A", B="file:shop")}, []),
        ({"endpoint": to("https://hooks.example/shop", A="told outright")}, []),
        ({"endpoint": to("https://hooks.example/shop", A="env:MAIL")}, ["endpoint.headers.A"]),
        (
            {"endpoint": to("https://hooks.example/shop", Accept="env:MAIL")},
            ["endpoint.headers.Accept"],
        ),
        ({"signing": {"secrets": [SECRET, "file:shop"]}}, []),
        ({"signing": {"secrets": [SECRET, "file:shopping"]}}, ["signing.secrets.1"]),
        ({"endpoint": to("https://elsewhere.example")}, ["endpoint.url"]),
    ],
)
def test_a_subscription_uses_what_its_token_may_use(
    changes: dict[str, Any], beyond: list[str]
) -> None:
    assert refused(**changes) == beyond


def test_everything_that_is_beyond_is_said_with_the_setting_that_would_allow_it() -> None:
    told = SHOP.refusals(
        subscription({**MINE, "topics": ["x"], "group": "g", "endpoint": to("https://x.example")})
    )
    assert [path for path, _ in told] == ["topics.0", "group", "endpoint.url"]
    assert told[0][1] == "token 'shop' may not use the topic 'x': api.tokens.shop.topics allows it"


REACHING = {
    "topics": "topics",
    "partitions": "topics",
    "pattern": "topics",
    "broker": "brokers",
    "group": "groups",
    "dead_letter_topic": "dead_letter_topics",
    "endpoint": "endpoints and secrets",
    "signing": "secrets",
    "id": "ids",
}
HARMLESS = {"consumer", "start", "format", "metadata_headers", "order", "retry", "limits"}


def test_a_new_field_of_a_subscription_is_judged_or_said_to_be_harmless() -> None:
    assert REACHING.keys() | HARMLESS == Subscription.model_fields.keys()
    assert {
        name for name, each in Subscription.model_fields.items() if has_secrets(each.annotation)
    } == {"endpoint", "signing"}


def has_secrets(annotation: Any) -> bool:
    """Return whether a type has a `SecretStr` somewhere, which may be a reference."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(has_secrets(each.annotation) for each in annotation.model_fields.values())
    return annotation is SecretStr or any(map(has_secrets, get_args(annotation)))


def test_who_may_do_nothing_and_who_everything() -> None:
    wanted = subscription({**MINE, "topics": [], "pattern": "(a|b).*", "group": "g"})
    assert everything("ops").refusals(wanted) == []
    assert len(NOBODY.refusals(wanted)) == 4
    assert [NOBODY.sees(owner) for owner in ("", "shop")] == [False, False]
    assert [everything("own", "").sees(owner) for owner in ("", "shop")] == [True, True]
    assert [SHOP.sees(owner) for owner in ("", "shop", "till")] == [False, True, False]
    assert [SHOP.may_name(id_) for id_ in ("shop.a", "shop", "shopa", "x")] == [True] + [False] * 3
    assert SHOP.lacks("write") == ""
    assert "api.tokens.shop.rights" in SHOP.lacks("operate")
    assert [each for each in ("read", "write", "operate") if not NOBODY.lacks(each)] == []


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ("orders", True)),
        ("^orders.*", ("orders", False)),
        (r"orders\.v1", ("orders.v1", True)),
        (r"orders\.(eu|us)", ("orders.", False)),
        ("orders?", ("order", False)),
        ("orders*", ("order", False)),
        ("orders{0}", ("order", False)),
        ("orders+", ("order", False)),
        ("orders|.*", ("", False)),
        ("(orders|x)", ("", False)),
        ("orders(a)|.*", ("", False)),
        ("orders[(]|.*", ("", False)),
        (r"orders\(|.*", ("", False)),
        (r"orders\\.(|.*", ("", False)),
        ("orders(?x)#(\n|.*", ("", False)),
        ("orders)|(.*", ("", False)),
        ("(?i)orders", ("", False)),
        (".*", ("", False)),
    ],
)
def test_what_all_matches_of_a_pattern_begin_with(pattern: str, found: tuple[str, bool]) -> None:
    assert beginning(pattern) == found


PIECES = ["o", "p", ".", r"\.", "*", "?", "+", "|", "(", ")", "[op]", "[(]", "[)]", "^", "$"]
PIECES += [r"\(", r"\|", "{0}", "{1,2}", "(?:", "(?i)", "(?x)", "#", "\n", " ", r"\\", r"\d", "-"]


@given(
    st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.text("opOP.-|(1", max_size=4)
)
def test_no_pattern_matches_a_name_beyond_what_it_is_allowed_for(pattern: str, name: str) -> None:
    try:
        matches = matcher(f"^({pattern})$")
        matcher(f"^{pattern}")
    except ValueError:
        return
    for entries in (("o*",), ("op*",), ("o",), ("p.*", "o.")):
        if covers_all_of(entries, pattern) and matches(name):
            assert covers(entries, name), (entries, pattern, name)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/shop",
        "https://hooks.example/shop/",
        "https://hooks.example/shop/a?b=c",
        "https://HOOKS.example:443/shop",
        "https://a.shop.example/x",
        "https://a.b.shop.example/../x",
    ],
)
def test_urls_that_are_within(url: str) -> None:
    assert reaches(SHOP.endpoints, url)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/",
        "https://hooks.example/shopping",
        "https://hooks.example/shop/../till",
        "https://hooks.example/shop/%2e%2e/till",
        # Servers cut parameters off, and NUL, and read letters that are written too long.
        "https://hooks.example/shop/..;/till",
        "https://hooks.example/shop/..;a=b/till",
        "https://hooks.example/shop/..%3b/till",
        "https://hooks.example/shop/.%00./till",
        "https://hooks.example/shop/%c0%ae%C0%AE/till",
        "https://hooks.example/shop/%E0%80%AE./till",
        "https://hooks.example/shop/%u002e%u002e/till",
        "https://hooks.example/shop/..%2Ftill",
        "https://hooks.example/shop/%252e%252e/till",
        "https://hooks.example/shop/./x",
        "http://hooks.example/shop",
        "https://hooks.example:8443/shop",
        "https://hooks.example:0/shop",
        "https://hooks.example.evil.example/shop",
        "https://hooks.example./shop",
        "https://shop.example/x",
        "https://evilshop.example/x",
        "https://a.shop.example.evil.example/x",
        "https://evil.example/?https://hooks.example/shop",
    ],
)
def test_urls_that_are_not(url: str) -> None:
    assert not reaches(SHOP.endpoints, url)
    assert reaches(("*",), url)
    assert not reaches((), url)


@pytest.mark.parametrize(
    "entry",
    [
        *("", "hooks.example", "ftp://x", "https://", "https://a@x", "https://x?a", "https://x#a"),
        *("https://a*.x", "https://x/*", "https://*.*.x", "https://x/a/../b", "https://x:y", "**"),
    ],
)
def test_entries_that_are_no_place(entry: str) -> None:
    assert wrong_url(entry)
    assert not any(map(wrong_url, [*SHOP.endpoints, "*", "http://127.0.0.1:8080"]))


NAMES = st.text("ab.", min_size=1, max_size=3)
ENTRIES = st.lists(st.builds("{}{}".format, NAMES, st.sampled_from(["", "*"])), max_size=3)


@given(ENTRIES, ENTRIES, st.text("ab.", min_size=1, max_size=5))
def test_two_owners_whose_ids_do_not_overlap_never_name_the_same(
    one: list[str], other: list[str], name: str
) -> None:
    both = covers(one, name) and covers(other, name)
    assert not both or overlap(one, other) is not None
    assert (overlap(one, other) is None) == (overlap(other, one) is None)


def test_a_name_is_taken_as_it_is_and_no_part_of_it_is_a_pattern() -> None:
    assert not covers(["a.c", "[ab]c", "a?c"], "abc")
    assert covers(["*"], "anything")
    assert not covers([], "anything")
    assert not re.search("api.tokens.shop", replace(SHOP, name="till").lacks("operate"))
